"""The command `agentcli serve`."""

from functools import partial

from agentcli.cli import options
from agentcli.cli.call import Call
from agentcli.cli.command import Command, Option

server_option = partial(Option, panel="Server")

HOST = server_option("--host", "Address to listen on. Default: 127.0.0.1.")
PORT = server_option(
    "--port", "Port to listen on. Default: 8000.", int, "N", least=1, most=65535
)


def serve(call: Call) -> None:
    """Serve the model of RUN with vLLM, for --policy openai, until Ctrl-C.

    Prints the options with which other commands use it. The served name
    contains a hash of the weights. Anyone who can reach the address can
    send requests; VLLM_API_KEY sets a key.
    """
    from agentcli.reports.output import print_data
    from agentcli.stages.resolve import find_model
    from agentcli.stages.serve import command, perform, plan

    port = call.values["port"] or 8000
    settings = call.settings
    model = find_model(settings, call.place.source)
    assert model is not None  # only policies without a model have none
    host = call.values["host"] or "127.0.0.1"
    server = plan(settings, model, host=host, port=port)
    facts = {"url": server.url, "model": server.name, "use": server.use}
    if call.dry:
        answer = {**facts, "command": command(server)}
        print_data(answer, json=call.values["json"])
        return
    call.progress.wait(f"starting vLLM for {model}")
    perform(server, lambda: call.announce(server.use, facts))


COMMAND = Command(
    name="serve",
    body=serve,
    options=(
        options.RUN_ARGUMENT,
        options.PRESET,
        options.CONFIG,
        options.SET,
        options.MODEL,
        options.ADAPTER,
        options.DTYPE,
        HOST,
        PORT,
        *options.REPORTING,
    ),
    inherits=True,
    example="agentcli serve runs/rl --port 8001",
)
