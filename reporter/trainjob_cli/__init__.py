"""Training jobs in a terminal: `kubectl trainjob-progress`, or `trainjob-progress` on its own.

It reads the API through `trainjob_client`, without its models, so that it starts in a tenth of a second.
"""
