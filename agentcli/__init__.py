"""agentcli: train language-model agents in stages that read and write files."""

__version__ = "0.1.0"
