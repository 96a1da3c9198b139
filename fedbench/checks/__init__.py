"""What `fedbench check` asks of a method, a model and data; the project's own conformance tests ask the same."""
