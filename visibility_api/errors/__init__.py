"""Errors, the Status that each becomes, and the text that messages may quote."""
