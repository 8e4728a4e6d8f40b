"""Malformed and odd tensors: tables, hand-made structs on guarded pages, and the child that tries them."""
