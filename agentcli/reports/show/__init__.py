"""What `agentcli show` shows: runs, trees and steps are read here and drawn here."""
