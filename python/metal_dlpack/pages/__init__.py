"""What every page of ours is made of: elements, and colours for a light and a dark ground."""
