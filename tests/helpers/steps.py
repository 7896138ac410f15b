"""A small engine around `dspark.DecodeStep`: just enough of one to see what a step does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from generated import dspark

SIZES = {"G": 4, "K": 3, "W": 3, "H": 8}
LAYERS, RANK, HALF, PAGE, BLOCKS, SLOTS, PAGES, MAX_CTX = 2, 4, 2, 4, 6, 6, 32, 20
WIDTH = RANK + 2 * HALF


class Engine:
    """The state, the stages, and what was called; everything seeded."""

    def __init__(self, device: torch.device, **changes: Any) -> None:
        self.device = device
        seeded = torch.Generator().manual_seed(5)

        def normal(*shape: int) -> torch.Tensor:
            return torch.randn(shape, generator=seeded).to(torch.bfloat16).to(device)

        def zeros(*shape: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        self.targets = torch.randint(0, 3, (64, 4, 4), generator=seeded).to(device)
        self.table, self.hidden_rows = normal(16, SIZES["H"]), normal(16, LAYERS * WIDTH)
        self.calls: list[str] = []
        self.fail_in = ""
        self.step_number = 0
        offsets = torch.full((1, 5, 2, BLOCKS), -1, dtype=torch.int32)
        for row in range(5):
            offsets[0, row, 0, :5] = 2 * (torch.arange(5, dtype=torch.int32) + 5 * row)
        self.state: dict[str, Any] = {
            "block_offsets": offsets.to(device),
            "block_counts": zeros(5, dtype=torch.int64),
            "block_tables": zeros(5, BLOCKS),
            "accepted_tokens": zeros(5, 4),
            "num_accepted": zeros(5),
            "batch_to_slot": torch.tensor([5, 2, 0, 1, 5]).to(device),
            "ctx_len": torch.tensor([3, 17, 9, 1, 1, 0]).to(device),
            "seq_lens": zeros(5),
            "target_kv_lens": torch.tensor([7, 4, 18, 10, 1], dtype=torch.int32).to(device),
            "draft_tokens": torch.randint(0, 3, (4, 3), generator=seeded, dtype=torch.int32).to(
                device
            ),
            "pool": [
                torch.zeros(PAGES, 1, 1, PAGE, WIDTH, dtype=torch.bfloat16, device=device)
                for _ in range(LAYERS)
            ],
            "embed_table": self.table,
            "norm_weight": normal(LAYERS, RANK),
            "freqs": torch.randn(MAX_CTX + 4, HALF, 2, generator=seeded).to(device),
        }
        numbers = {
            "max_ctx": MAX_CTX,
            "mask_token_id": 15,
            "eps": 1e-6,
            "divisor": 2,
            "pool_index": 0,
        }
        functions: dict[str, Callable[..., None]] = {
            name: self._watched(name) for name in dspark.DecodeStep.CALLS
        }
        self.step = dspark.DecodeStep(**functions | self.state | SIZES | numbers | changes)

    def _watched(self, name: str) -> Callable[..., None]:
        def call(**tensors: Any) -> None:
            self.calls.append(name)
            if name == self.fail_in:
                raise RuntimeError(f"{name} fails")
            getattr(self, f"_{name}")(**tensors)

        return call

    def _sample(self, target_tokens: torch.Tensor) -> None:
        rows, width = target_tokens.shape
        target_tokens.copy_(self.targets[self.step_number, :rows, :width])

    def _embed(self, embed_ids: torch.Tensor, embed_rows: torch.Tensor) -> None:
        torch.index_select(self.table, 0, embed_ids, out=embed_rows)

    def _project(self, latents: torch.Tensor) -> None:
        rows = self.hidden_rows[: latents.shape[0]] * (self.step_number + 1)
        latents.copy_(rows.view(latents.shape))

    def _norm_rope(
        self, staged: torch.Tensor, ctx_positions: torch.Tensor, normed: torch.Tensor
    ) -> None:
        normed.copy_(staged + ctx_positions.reshape(1, -1, 1).to(staged.dtype))

    def _begin_block(self, noise: torch.Tensor) -> None:
        self.hidden = noise.clone()

    def _layer_latents(
        self,
        query_positions: torch.Tensor,
        block_latents: torch.Tensor,
        l: int,  # noqa: E741
    ) -> None:
        del query_positions
        block_latents.copy_(self.hidden[..., :WIDTH] + l)

    def _layer_norm_rope(
        self,
        block_latents: torch.Tensor,
        query_positions: torch.Tensor,
        block_normed: torch.Tensor,
        l: int,  # noqa: E741
    ) -> None:
        del l
        block_normed.copy_(block_latents + query_positions.unsqueeze(-1).to(torch.bfloat16))

    def _attend(
        self,
        query_positions: torch.Tensor,
        page_tables: torch.Tensor,
        kv_lens: torch.Tensor,
        pool: torch.Tensor,
        l: int,  # noqa: E741
    ) -> None:
        del query_positions, l
        first = pool[page_tables[:, 0].long(), 0, 0, 0]
        self.hidden = self.hidden + (first.sum(1) + kv_lens).view(-1, 1, 1).to(torch.bfloat16)

    def _propose(self, bonus: torch.Tensor, draft_tokens: torch.Tensor) -> None:
        width = draft_tokens.shape[1]
        draft_tokens.copy_((self.hidden[:, :width].sum(-1) + bonus.unsqueeze(1)).int() % 3)

    def run(self, steps: int, **numbers: int) -> None:
        """Some steps with one context request in front."""
        numbers = {"G": 4, "num_contexts": 1, "num_seqs": 5} | numbers
        for _ in range(steps):
            self.step(**numbers)
            self.step_number += 1

    def tensors(self) -> dict[str, torch.Tensor]:
        """The whole state, lists unrolled, on the CPU; what the dummy slot holds is undefined."""
        found = {}
        for name, value in self.state.items():
            for at, each in enumerate(value if isinstance(value, list) else [value]):
                found[f"{name}[{at}]"] = each.detach().clone().cpu()
        found["ctx_len[0]"][5] = 0
        return found


def replayed(device: torch.device, steps: int) -> Engine:
    """An engine whose one captured step was replayed so often, under the switches as they are."""
    Engine(device).run(1)  # compiles; another engine's state
    engine = Engine(device)
    targets, rows = engine.targets, engine.hidden_rows.clone()
    engine.targets = targets.clone()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        engine.step(G=4, num_contexts=1, num_seqs=5)
    for number in range(steps):
        engine.targets[0] = targets[number]
        engine.hidden_rows.copy_(rows * (number + 1))
        graph.replay()
    torch.cuda.synchronize()
    return engine
