"""A second reader of the wire protocol, made from docs/protocol.md alone.

It shares no code and no library with the cluster's own, so that bytes on which both agree mean what the
specification says.
"""
