"""Every parser that reads the bytes of strangers, fed with arbitrary ones: `make fuzz`."""
