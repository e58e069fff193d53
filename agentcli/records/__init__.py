"""The records that stages exchange, and their form on disk.

Every other subpackage imports this one. It imports nothing from agentcli but the
errors.
"""
