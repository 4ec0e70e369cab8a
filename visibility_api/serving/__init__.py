"""The connection itself: TLS with certificates that change, bounds on what comes before a request, one write
for what belongs together. Who is at the other end is handed to `auth`; what is asked, to `api`."""
