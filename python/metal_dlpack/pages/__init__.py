"""What our pages are made of: elements, and colours for a light and a dark ground."""
