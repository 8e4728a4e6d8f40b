"""What frameworks do, found by asking them in child processes: nothing here imports one in this process."""
