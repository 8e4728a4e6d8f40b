"""What an array looks like: its items as text, and where its bytes lie on a memory."""
