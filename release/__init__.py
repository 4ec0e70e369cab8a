"""What a release consists of: `make release` puts it into dist/."""
