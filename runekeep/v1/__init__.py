"""Generated stubs of the contract `proto/runekeep/v1`; written by `make proto`, never by hand."""
