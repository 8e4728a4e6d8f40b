"""The records of a timeline: what they are, and how they are drawn, added up and written."""
