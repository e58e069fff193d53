"""The facts that a page shows (`agentcli view`), as plain records."""
