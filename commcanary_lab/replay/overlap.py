"""Compute beside a collective: matrix products that last as long as the source says."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

__all__ = ["Compute"]

_SIDE = {"cpu": 128, "cuda": 1024}


class Compute:
    """Matrix products on this rank while the network works: in this thread on a CPU, on a side stream on a GPU.

    torch's own threads move the data of an asynchronous collective, so the thread that started it is free to compute, as it is in a job.

    Parameters
    ----------
    device : torch.device
        Where it computes.
    """

    def __init__(self, device: torch.device) -> None:
        import torch

        side = _SIDE.get(device.type, 256)
        self._device = device
        self._a, self._b = (torch.rand(side, side, device=device) for _ in range(2))
        self._out = torch.empty_like(self._a)
        self._stream: Any = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._one_ns = self._calibrate()

    def _calibrate(self) -> int:
        """How long one product takes: the median of 21."""
        import torch

        times = []
        for _ in range(21):
            start = time.monotonic_ns()
            torch.mm(self._a, self._b, out=self._out)
            self._wait()
            times.append(time.monotonic_ns() - start)
        return max(1, sorted(times)[10])

    def _wait(self) -> None:
        if self._stream is not None:
            import torch

            torch.cuda.synchronize(self._device)

    def run(self, duration_ns: int) -> int:
        """Compute for about `duration_ns` and return when it was done on this rank's clock; on a GPU it only starts it and returns 0."""
        import torch

        if self._stream is not None:
            with torch.cuda.stream(self._stream):
                for _ in range(max(1, duration_ns // self._one_ns)):
                    torch.mm(self._a, self._b, out=self._out)
            return 0
        end = time.monotonic_ns() + duration_ns
        while (now := time.monotonic_ns()) < end:
            torch.mm(self._a, self._b, out=self._out)
        return now

    def join(self) -> int:
        """Wait for a GPU's side stream and return when it was done."""
        if self._stream is None:
            return 0
        self._stream.synchronize()
        return time.monotonic_ns()
