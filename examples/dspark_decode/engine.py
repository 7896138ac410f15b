"""The serving loop: requests join, prefill in chunks, generate, are preempted, and leave.

In: requests. Out: their tokens. Each step runs the target, then the generated decode step. Slots and
pages are the host's; lengths, last tokens and drafts live on the device, because the host sees a step's
result only when the next one is already on its way. Not here: the models, and the step's bookkeeping.
"""

from __future__ import annotations

import hashlib
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from examples.dspark_decode.model import EPS, Drafter, Sizes, Target
from examples.dspark_decode.pages import Pages
from examples.dspark_decode.ranks import Ranks
from generated import dspark

POOLS, POOL = 2, 1  # the drafter's is the second of two KV pools
# Requests that generate are padded to one of these, so that few graphs are captured.
GRAPH_SIZES = (1, 2, 4)


@dataclass(eq=False)
class Request:
    """One request and what the host knows of it."""

    id: str
    prompt: list[int]
    new_tokens: int
    tokens: list[int] = field(init=False)  # the prompt, then what was generated
    accepted: list[int] = field(init=False, default_factory=list)  # a number a step
    # Raised whenever the request loses its slot: a result with an older epoch is nobody's.
    epoch: int = field(init=False, default=0)
    slot: int = field(init=False, default=-1)
    pages: list[int] = field(init=False, default_factory=list)
    filled: int = field(init=False, default=0)  # tokens whose prefill has been issued
    to_fill: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.tokens = list(self.prompt)

    @property
    def output(self) -> list[int]:
        """What was generated so far."""
        return self.tokens[len(self.prompt) :]


@dataclass(frozen=True)
class _Result:
    """What a step left on the device for one request."""

    request: Request
    epoch: int
    tokens: Tensor  # i64[at least 1]
    count: Tensor | None  # i32[], how many of them; None for the first token, after the prompt


class Engine:
    """Drives one model; with tensor parallelism every rank runs one, and all decide alike."""

    def __init__(
        self,
        sizes: Sizes,
        ranks: Ranks,
        device: torch.device,
        *,
        chunk: int = 4,
        lag: int = 1,
        graph: bool = False,
    ) -> None:
        """Make the buffers, which stay where they are.

        Args:
            sizes: of models and buffers.
            ranks: this rank's place.
            device: where all tensors are.
            chunk: tokens of a prompt that are prefilled in a step.
            lag: steps that the host sees results late.
            graph: replay CUDA graphs where a batch has no context requests.
        """
        self.sizes, self.ranks, self.device = sizes, ranks, device
        self.chunk, self.lag, self.graph = chunk, lag, graph
        self.events: Counter[str] = Counter()
        self.trace: list[Tensor] = []
        self.finished: list[Request] = []
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []  # oldest first
        self._late: deque[list[_Result]] = deque()
        self._graphs: dict[tuple[int, int], torch.cuda.CUDAGraph] = {}

        batch, K1 = sizes.max_batch, sizes.K + 1  # noqa: N806 - the contract's names
        # Padded rows write somewhere: onto pages that belong to the dummy slot. Page 0 is among them,
        # since placeholders decode to it.
        dummies = -(-max(K1, sizes.width(sizes.K)) // sizes.page_size)
        self._dummy_pages = list(range(dummies))
        self.pages = Pages(dummies, sizes.pages, sizes.page_size)

        def zeros(*shape: int, dtype: torch.dtype = torch.int64) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        i32 = torch.int32
        self.block_offsets = zeros(POOLS, batch, 2, sizes.blocks, dtype=i32)
        self.batch_to_slot = zeros(batch)
        self.draft_tokens = zeros(batch, sizes.K, dtype=i32)
        self.target_kv_lens = zeros(batch, dtype=i32)
        self.seq_lens = zeros(batch, dtype=i32)
        self.accepted_tokens = zeros(batch, K1, dtype=i32)
        self.num_accepted = zeros(batch, dtype=i32)
        self.block_counts = zeros(batch)
        self.block_tables = zeros(batch, sizes.blocks, dtype=i32)
        # By slot: tokens in the context, the last two tokens, and the drafts after them.
        self.ctx_len = zeros(sizes.slots)
        self.last_two = zeros(sizes.slots, 2)
        self.drafts = zeros(sizes.slots, sizes.K, dtype=i32)
        # Layers interleave in one allocation, so a layer's pages are not side by side.
        arena = (dummies + sizes.pages, sizes.L, 1, sizes.page_size, sizes.D)
        self.arena = zeros(*arena, dtype=torch.bfloat16)

        self.target = Target(sizes, ranks, device)
        self.drafter = Drafter(sizes, self.target, ranks, device, batch)
        vocab = self.target.bigram.shape[1]
        self.logits = zeros(batch * K1, vocab, dtype=torch.float32)
        self.step = self._make_step(
            sample=self._sample,
            embed=self.drafter.embed,
            project=self.drafter.project,
            norm_rope=self.drafter.norm_rope,
            begin_block=self.drafter.begin_block,
            layer_latents=self.drafter.layer_latents,
            layer_norm_rope=self.drafter.layer_norm_rope,
            attend=self.drafter.attend,
            propose=self.drafter.propose,
        )

    # Requests.

    def submit(self, request: Request) -> None:
        """Queue a request; its id may be used again once the request has left."""
        if self.knows(request.id):
            raise ValueError(f"request {request.id!r} is not finished, so its id is not free")
        if not request.prompt or request.new_tokens < 1:
            raise ValueError(f"request {request.id!r} needs a prompt, and a token to generate")
        reach, room = (
            len(request.prompt) + request.new_tokens,
            self.most_tokens(self.sizes, self.lag),
        )
        if reach > room:
            raise ValueError(
                f"request {request.id!r} may reach {reach} tokens; there is room for {room}"
            )
        self.waiting.append(request)

    @staticmethod
    def most_tokens(sizes: Sizes, lag: int) -> int:
        """Most tokens of one request, prompt and output: what is left beside steps under way."""
        room = min(sizes.blocks, sizes.pages) * sizes.page_size
        return room - (lag + 1) * (sizes.K + 1) - sizes.width(sizes.K)

    def knows(self, id: str) -> bool:
        """Whether a request of that id waits or runs."""
        return any(id == each.id for each in (*self.waiting, *self.running))

    def preempt(self, request: Request) -> None:
        """Take slot and pages from a request; it starts again from the tokens that the host knows."""
        self._drop(request)
        self.waiting.appendleft(request)
        self.events["preemptions"] += 1

    def abort(self, request: Request) -> None:
        """Forget a request, wherever it is."""
        if request in self.running:
            self._drop(request)
        else:
            self.waiting.remove(request)

    def run(self) -> None:
        """Steps until nothing is left to do."""
        while self.busy:
            self.advance()

    @property
    def busy(self) -> bool:
        """Whether a request waits or runs."""
        return bool(self.waiting or self.running)

    # One step.

    def advance(self, drafts: int | None = None) -> None:
        """One step with so many draft tokens a request, K at most."""
        drafts = self.sizes.K if drafts is None else drafts
        self._admit()
        for request in list(self.running):
            while request in self.running and not self._reserve(request):
                self.preempt(self.running[-1])  # the youngest, so the oldest always gets on
        contexts = [each for each in self.running if each.filled < each.to_fill]
        generating = [each for each in self.running if each.filled == each.to_fill]

        padded = self._padded(len(generating), self.sizes.max_batch - len(contexts))
        graph = self._captured(padded, drafts) if self.graph and padded and not contexts else None
        self._stage(contexts, generating, drafts)
        results = [first for each in contexts if (first := self._prefill(each)) is not None]
        self._verify(len(contexts), padded, drafts)
        if graph is not None:
            graph.replay()
        else:
            self._call(self.step, padded, len(contexts), drafts)
        results += self._keep(len(contexts), generating, padded, drafts)

        self._late.append(results)
        while len(self._late) > self.lag:
            self._apply(self._late.popleft())
        self._count(len(contexts), len(generating), padded)

    def _admit(self) -> None:
        taken = {each.slot for each in self.running}
        while self.waiting and len(self.running) < self.sizes.max_batch:
            request = self.waiting[0]
            request.pages = self.pages.share(request.tokens)
            request.filled = len(request.pages) * self.sizes.page_size
            if not self._reserve(request):
                self.pages.release(request.pages)
                request.pages = []
                return
            self.waiting.popleft()
            request.to_fill = len(request.tokens)
            request.slot = min(set(range(self.sizes.max_batch)) - taken)
            taken.add(request.slot)
            self.running.append(request)
            self.events["prefix hits"] += bool(request.filled)

    def _reserve(self, request: Request) -> bool:
        """Pages for all that this step may write, if results still under way are as long as can be."""
        sizes = self.sizes
        under_way = len(self._late) + 1
        reach = len(request.tokens) + under_way * (sizes.K + 1) + sizes.width(sizes.K)
        needed = min(-(-reach // sizes.page_size), sizes.blocks)
        more = self.pages.take(max(needed - len(request.pages), 0))
        if more is None:
            return False
        request.pages += more
        return True

    def _drop(self, request: Request) -> None:
        self.running.remove(request)
        self.pages.release(request.pages)
        request.pages, request.slot = [], -1
        request.epoch += 1

    def _padded(self, count: int, room: int) -> int:
        """G for so many requests."""
        sizes = (*GRAPH_SIZES, self.sizes.max_batch)
        return min(room, next(size for size in sizes if size >= count)) if count else 0

    def _stage(self, contexts: list[Request], generating: list[Request], drafts: int) -> None:
        """Copy this step's batch into the step's buffers: context requests first, padding last."""
        sizes = self.sizes
        dummy = sizes.slots - 1
        offsets = torch.full((sizes.max_batch, sizes.blocks), -1, dtype=torch.int32)
        slots = torch.full((sizes.max_batch,), dummy)
        offsets[:, : len(self._dummy_pages)] = torch.tensor(self._dummy_pages) * sizes.L
        for row, request in enumerate((*contexts, *generating)):
            offsets[row] = -1
            offsets[row, : len(request.pages)] = torch.tensor(request.pages) * sizes.L
            slots[row] = request.slot
        self.block_offsets.fill_(-1)
        self.block_offsets[POOL, :, 0].copy_(offsets)
        self.batch_to_slot.copy_(slots)
        self.target_kv_lens.copy_(self.ctx_len[self.batch_to_slot] + drafts)
        for row, request in enumerate(contexts):
            self.seq_lens[row] = min(self.chunk, request.to_fill - request.filled)

    def _prefill(self, request: Request) -> _Result | None:
        """The next chunk of a prompt, through the target and into the drafter's pages."""
        sizes, slot = self.sizes, request.slot
        start = request.filled
        end = request.filled = min(start + self.chunk, request.to_fill)
        page = sizes.page_size
        at = range(start, end)
        tokens = torch.tensor([0, *request.tokens][start : end + 1], device=self.device)
        places = torch.tensor(
            [list(at), [request.pages[each // page] for each in at], [each % page for each in at]],
            device=self.device,
        )
        logits, captured = self.target(tokens[:-1], tokens[1:], places[0])
        self.drafter.prefill(captured, places, self.pool)
        self.ctx_len[slot] = end
        self.pages.keep(request.tokens[:end], request.pages)
        if end < request.to_fill:
            return None
        first = self.ranks.argmax(logits[-1:])
        self.last_two[slot] = torch.cat((tokens[-1:], first))
        # Nobody has drafted for it yet. The target never says the mask token.
        self.drafts[slot] = sizes.mask_token_id
        return _Result(request, request.epoch, first, None)

    def _verify(self, contexts: int, padded: int, drafts: int) -> None:
        """The target's logits and hidden states of each request's last token and its drafts."""
        if padded == 0:
            return
        # Rows move as requests come and go, so what a request takes from step to step is kept by slot.
        slots = self.batch_to_slot[contexts : contexts + padded]
        self.draft_tokens[:padded] = self.drafts[slots]
        sequence = torch.cat((self.last_two[slots], self.draft_tokens[:padded, :drafts]), dim=1)
        steps = torch.arange(drafts + 1, device=self.device)
        positions = self.ctx_len[slots].unsqueeze(1) + steps
        before, tokens = sequence[:, :-1].flatten(), sequence[:, 1:].flatten()
        logits, captured = self.target(before, tokens, positions.flatten())
        self.logits[: len(logits)].copy_(logits)
        self.drafter.captured[: len(captured)].copy_(captured)

    def _sample(self, *, target_tokens: Tensor) -> None:
        """The step's stage `sample`.

        Args:
            target_tokens: i64[G, K1], out.
        """
        logits = self.logits[: target_tokens.numel()].view(*target_tokens.shape, -1)
        target_tokens.copy_(self.ranks.argmax(logits))

    def _call(self, step: Callable[..., None], padded: int, contexts: int, drafts: int) -> None:
        step(
            G=padded,
            num_contexts=contexts,
            num_seqs=contexts + padded,
            K=drafts,
            W=self.sizes.width(drafts),
        )

    def _keep(
        self, contexts: int, generating: list[Request], padded: int, drafts: int
    ) -> list[_Result]:
        """Take what the step left in rows to slots, and copies for the host."""
        if padded == 0:
            return []
        rows = slice(contexts, contexts + padded)
        slots = self.batch_to_slot[rows]
        accepted = self.accepted_tokens[rows, : drafts + 1].long()
        counts = self.num_accepted[rows].clone()
        sequence = torch.cat((self.last_two[slots, 1:], accepted), dim=1)
        ends = counts.long().unsqueeze(1) + torch.arange(-1, 1, device=self.device)
        self.last_two[slots] = sequence.gather(1, ends)
        # After a step with fewer drafts, the rest must not be last step's.
        new = torch.full_like(self.drafts[slots], self.sizes.mask_token_id)
        new[:, :drafts] = self.draft_tokens[:padded, :drafts]
        self.drafts[slots] = new

        live = len(generating)
        real = slice(0, contexts + live)
        self.trace += [
            each.clone()
            for each in (
                self.accepted_tokens[rows, : drafts + 1][:live],
                *(counts[:live], new[:live], self.seq_lens[real], self.target_kv_lens[real]),
                *(self.ctx_len[:-1], self.block_counts[real], self.block_tables[real]),
            )
        ]
        return [
            _Result(each, each.epoch, accepted[row], counts[row])
            for row, each in enumerate(generating)
        ]

    def _apply(self, results: list[_Result]) -> None:
        """Let the host know; what belongs to a request that has lost its slot since is nobody's."""
        for result in results:
            request = result.request
            if request.epoch != result.epoch:
                self.events["late results dropped"] += 1
                continue
            count = 1 if result.count is None else int(result.count)
            request.tokens += result.tokens[:count].tolist()
            if result.count is not None:
                request.accepted.append(count)
            if len(request.output) >= request.new_tokens:
                del request.tokens[len(request.prompt) + request.new_tokens :]
                self._drop(request)
                self.finished.append(request)

    def _count(self, contexts: int, generating: int, padded: int) -> None:
        self.events["steps"] += 1
        self.events["mixed steps"] += bool(contexts and generating)
        self.events["steps with G = 0"] += padded == 0
        self.events["padded rows"] += padded - generating

    # Graphs, launches, bits.

    @property
    def pool(self) -> list[Tensor]:
        """L views bf16[pages, 1, 1, page_size, D]."""
        return [self.arena[:, layer : layer + 1] for layer in range(self.sizes.L)]

    def _make_step(self, **stages: Any) -> Callable[..., None]:
        sizes, drafter = self.sizes, self.drafter
        return dspark.DecodeStep(
            **stages,
            block_offsets=self.block_offsets,
            block_counts=self.block_counts,
            block_tables=self.block_tables,
            accepted_tokens=self.accepted_tokens,
            num_accepted=self.num_accepted,
            batch_to_slot=self.batch_to_slot,
            ctx_len=self.ctx_len,
            seq_lens=self.seq_lens,
            target_kv_lens=self.target_kv_lens,
            draft_tokens=self.draft_tokens,
            pool=self.pool,
            norm_weight=drafter.norm_weight,
            freqs=drafter.freqs,
            G=sizes.max_batch,
            K=sizes.K,
            W=sizes.width(sizes.K),
            H=sizes.H,
            max_ctx=sizes.max_ctx,
            mask_token_id=sizes.mask_token_id,
            eps=EPS,
            divisor=sizes.L,
            pool_index=POOL,
        )

    def _captured(self, padded: int, drafts: int) -> torch.cuda.CUDAGraph:
        """The graph of a step with only generation requests.

        The warm-up and the capture see dummy rows alone, so they may happen between any two steps.
        """
        key = (padded, drafts)
        if key not in self._graphs:
            self._stage([], [], drafts)
            self._call(
                self.step, padded, 0, drafts
            )  # compiles, and loads modules, which a capture may not
            torch.cuda.synchronize()
            self._graphs[key] = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._graphs[key]):
                self._call(self.step, padded, 0, drafts)
        return self._graphs[key]

    def launches(self, count: Callable[[Callable[[], None]], int]) -> tuple[int, int]:
        """Launches of a step's bookkeeping alone, and of the whole step, as `count` counts them."""
        self._stage([], [], self.sizes.K)
        sizes = self.sizes
        names = (
            *("sample", "embed", "project", "norm_rope", "begin_block"),
            *("layer_latents", "layer_norm_rope", "attend", "propose"),
        )
        bare = self._make_step(**dict.fromkeys(names, _nothing))
        counts = [
            count(lambda step=step: self._call(step, 1, 0, sizes.K))  # type: ignore[misc]
            for step in (bare, self.step)
        ]
        return counts[0], counts[1]

    def microseconds(self, repeats: int = 50) -> float:
        """Median time of a full step on the GPU, replayed if this engine replays."""
        batch, drafts = self.sizes.max_batch, self.sizes.K
        call = self._captured(batch, drafts).replay if self.graph else None
        self._stage([], [], drafts)
        times = []
        for _ in range(repeats + 5):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            if call is not None:
                call()
            else:
                self._call(self.step, batch, 0, drafts)
            end.record()
            end.synchronize()
            times.append(1000 * start.elapsed_time(end))
        return float(sorted(times[5:])[repeats // 2])

    def digest(self) -> str:
        """A hash of every step's state and of the pool; what the dummy slot holds is left out."""
        found = hashlib.sha256()
        pool = self.arena[len(self._dummy_pages) :]
        for each in (*self.trace, pool):
            found.update(str(tuple(each.shape)).encode())
            found.update(bytes(each.contiguous().view(torch.uint8).flatten().tolist()))
        return found.hexdigest()


def _nothing(**_: object) -> None:
    """A stage that does nothing, to count what is left."""
