"""Drives the agent with the example client of the Python SDK.

python_client.py EXAMPLES WORK PROGRAM [ARGUMENT...]
"""

import asyncio
import asyncio.subprocess
import signal
import sys
from pathlib import Path

sys.path.insert(0, sys.argv[1])

from acp import PROTOCOL_VERSION, connect_to_agent, text_block  # noqa: E402
from acp.schema import (  # noqa: E402
    AllowedOutcome,
    ClientCapabilities,
    Implementation,
    RequestPermissionResponse,
)
from client import ExampleClient  # noqa: E402

WORK = Path(sys.argv[2])


class Person(ExampleClient):
    """The example client, with somebody who allows what it is asked."""

    def __init__(self):
        self.updates = []

    async def request_permission(self, session_id, tool_call, options, **kwargs):
        option = next(option for option in options if option.kind == "allow_once")
        outcome = AllowedOutcome(outcome="selected", option_id=option.option_id)
        return RequestPermissionResponse(outcome=outcome)

    async def session_update(self, session_id, update, **kwargs):
        self.updates.append(update)
        await super().session_update(session_id, update, **kwargs)


def check(what, good):
    print("good" if good else "bad", what, flush=True)


async def connect():
    pipe = asyncio.subprocess.PIPE
    limit = 64 << 20
    process = await asyncio.create_subprocess_exec(
        *sys.argv[3:], stdin=pipe, stdout=pipe, cwd=WORK, limit=limit
    )
    person = Person()
    agent = connect_to_agent(person, process.stdin, process.stdout)
    await agent.initialize(
        protocol_version=PROTOCOL_VERSION,
        client_capabilities=ClientCapabilities(),
        client_info=Implementation(name="python", title="Python", version="1"),
    )
    return process, person, agent


async def main():
    process, person, agent = await connect()
    session = await agent.new_session(mcp_servers=[], cwd=str(WORK))
    first = await agent.prompt(session_id=session.session_id, prompt=[text_block("run it")])
    check("a turn", first.stop_reason == "end_turn")
    check("the tool ran", (WORK / "ran.txt").exists())
    lost = asyncio.create_task(
        agent.prompt(session_id=session.session_id, prompt=[text_block("wait")])
    )
    while not (WORK / "begun.txt").exists():
        await asyncio.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    await process.wait()
    lost.cancel()

    process, person, agent = await connect()
    await agent.load_session(session_id=session.session_id, mcp_servers=[], cwd=str(WORK))
    calls = [u for u in person.updates if u.session_update == "tool_call"]
    check("replayed", [call.status for call in calls] == ["completed", "failed"])
    following = await agent.prompt(session_id=session.session_id, prompt=[text_block("go on")])
    check("goes on", following.stop_reason == "end_turn")
    process.stdin.close()
    check("ends well", await process.wait() == 0)
    print("end", flush=True)


asyncio.run(main())
