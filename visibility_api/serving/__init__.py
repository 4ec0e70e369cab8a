"""HTTPS on uvicorn: TLS whose certificates change at run time, limits per connection and request, few writes.

This is the only package that knows uvicorn, and it subclasses parts that uvicorn does not document: see
docs/decisions/0009-the-uvicorn-seam.md. It decides neither who a client is (`auth`) nor what is answered.
"""
