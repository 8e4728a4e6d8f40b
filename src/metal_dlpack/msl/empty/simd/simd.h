// In the shim.
