"""Generated stubs of the vendored validation rules; see proto/buf."""
