"""`sointer serve` in a process of its own, and clients that ask it as fast as they can."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

AUDITED = """
import sys
out = open(sys.argv[2], "a", buffering=1)
sys.addaudithook(lambda event, _: out.write(event + "\\n") if event in sys.argv[3:] else None)
from sointer.apps.serve import run
run(sys.argv[1], port=0)
"""
STARTED = re.compile(r"open http://127\.0\.0\.1:(\d+)")


class Server:
    """A running server: its port, its memory, what it printed."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        log = ""
        while (found := STARTED.search(log)) is None:
            line = process.stderr.readline()  # type: ignore[union-attr]
            if not line:
                raise RuntimeError(f"the server did not start: {log}")
            log += line
        self.port = int(found[1])
        self._said: list[str] = []
        # Read all the time: a pipe that is full would hold up the server.
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        self._said.extend(self.process.stderr)  # type: ignore[arg-type]

    def megabytes(self) -> float:
        """Memory that it holds now."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return round(int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024, 1)  # type: ignore[index]

    def seconds(self) -> float:
        """Processor time that it has taken: on a busy machine others take more of the clock's."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def reset_peak(self) -> None:
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")

    def peak_megabytes(self) -> float:
        """The most memory that it held since then."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return round(int(re.search(r"VmHWM:\s+(\d+)", status)[1]) / 1024, 1)  # type: ignore[index]

    def stop(self) -> str:
        """Ask it to stop, and give what it says to the end."""
        self.process.terminate()
        self.process.wait(timeout=120)
        self._reader.join()
        return "".join(self._said)


@contextmanager
def serving(*arguments: str, audit: tuple[str, ...] | None = None, folder: str | None = None) -> Iterator[Server]:
    """A server with these arguments, started in a folder; with `audit`, a log file and events to write there."""
    command = ["-m", "sointer", "serve", *arguments, "--port", "0"]
    if audit is not None:
        command = ["-c", AUDITED, *arguments, *audit]
    # What is freed is given back at once, so that the next request cannot hide in it.
    environment = {"OMP_NUM_THREADS": "1", "MALLOC_TRIM_THRESHOLD_": "65536", "MALLOC_MMAP_THRESHOLD_": "65536"}
    process = subprocess.Popen(
        [sys.executable, *command], stderr=subprocess.PIPE, text=True, cwd=folder, env={**os.environ, **environment}
    )
    try:
        yield Server(process)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def request(body: bytes, path: str = "/explain", kind: str = "application/json") -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


class Client:
    """One connection, kept open between requests as long as the server likes."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._streams: Any = None

    async def send(self, content: bytes) -> tuple[int, bytes]:
        """The status and body of the reply; ConnectionError if there is none."""
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self.port)
        reader, writer = self._streams
        try:
            writer.write(content)
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"content-length: (\d+)", head)
            if length is not None:
                body = await reader.readexactly(int(length[1]))
            else:
                body = await reader.read()
                self.close()
            if b"connection: close" in head:
                self.close()
            return int(head.split(b" ", 2)[1]), body
        except (asyncio.IncompleteReadError, OSError) as error:
            self.close()
            raise ConnectionError(str(error)) from error

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None
