"""The other replicas of this server: where they are, how they are recognised, what one takes from another.

A replica that starts takes the state of the jobs from those that run (`taking` from `giving`); what is pushed
to one is relayed to the others by `pushing`.
"""
