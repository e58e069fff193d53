"""The part of a Hugging Face hub that an upload needs, on loopback: repositories, uploads of small and large files, commits.

    with HubServer() as hub:
        ... hub.url, hub.token, hub.repos["me/agent"]["README.md"], hub.private

Weights go the way of large files: their bytes are uploaded first, and the commit names their sha256.
"""

import base64
import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class HubServer:
    """Serves within a `with` block, on a port of its own."""

    def __init__(self) -> None:
        self.token = "hf_a_token_of_this_test"
        self.repos: dict[str, dict[str, bytes]] = {}
        self.private: set[str] = set()
        self.commits = 0
        self.large: dict[str, bytes] = {}
        handler = type("Handler", (_Handler,), {"hub": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> "HubServer":
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def create(self, body: dict[str, Any]) -> dict[str, Any]:
        repo = f"{body['organization'] or 'somebody'}/{body['name']}"
        self.repos.setdefault(repo, {})
        if body.get("private") or body.get("visibility") == "private":
            self.private.add(repo)
        return {"url": f"{self.url}/{repo}"}

    def preupload(self, body: dict[str, Any]) -> dict[str, Any]:
        files = []
        for file in body["files"]:
            mode = "lfs" if file["path"].endswith(".safetensors") else "regular"
            files.append({"path": file["path"], "uploadMode": mode, "shouldIgnore": False})
        return {"files": files}

    def batch(self, body: dict[str, Any]) -> dict[str, Any]:
        objects = []
        for one in body["objects"]:
            action = {"upload": {"href": f"{self.url}/large/{one['oid']}"}}
            objects.append({**one, "authenticated": True, "actions": action})
        return {"transfer": "basic", "objects": objects}

    def commit(self, repo: str, lines: list[dict[str, Any]]) -> dict[str, Any]:
        for line in lines:
            value = line["value"]
            if line["key"] == "file":
                self.repos[repo][value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                self.repos[repo][value["path"]] = self.large[value["oid"]]
        self.commits += 1
        oid = hashlib.sha1(str(self.commits).encode()).hexdigest()
        return {"success": True, "commitOid": oid, "commitUrl": f"{self.url}/{repo}/commit/{oid}"}


class _Handler(BaseHTTPRequestHandler):
    hub: HubServer

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers["Authorization"] != f"Bearer {self.hub.token}":
            self._answer({"error": f"no rights with {self.headers['Authorization']}"}, 401)
            return
        parts = self.path.partition("?")[0].strip("/").split("/")
        if parts[:2] == ["api", "validate-yaml"]:
            self._answer({"errors": [], "warnings": []})
        elif parts == ["api", "repos", "create"]:
            self._answer(self.hub.create(json.loads(body)))
        elif parts[-2:-1] == ["preupload"]:
            self._answer(self.hub.preupload(json.loads(body)))
        elif parts[-2:] == ["objects", "batch"]:
            self._answer(self.hub.batch(json.loads(body)))
        elif parts[-2:-1] == ["commit"]:
            lines = [json.loads(line) for line in body.splitlines()]
            self._answer(self.hub.commit("/".join(parts[2:4]), lines))
        else:
            self._answer({"error": f"unknown place {self.path}"}, 404)

    def do_PUT(self) -> None:
        data = self.rfile.read(int(self.headers["Content-Length"]))
        self.hub.large[hashlib.sha256(data).hexdigest()] = data
        self._answer({})

    def do_GET(self) -> None:
        self._answer({"error": f"unknown place {self.path}"}, 404)

    def _answer(self, body: dict[str, Any], status: int = 200) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Prints nothing."""
