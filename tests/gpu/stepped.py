"""The whole step on a GPU: its bits in every setting, its variants, and its time at K3 sizes.

    python3 tests/gpu/stepped.py --out FOLDER [--only bits|times] [--budget SECONDS]
    python3 tests/gpu/stepped.py --out FOLDER --dry-run      # on a CPU, small sizes, nothing is timed

Needs torch and triton, and of kgen only the working tree. Writes step.json after each row. Exit code 1 if
bits differ or a variant was compiled after warm-up.
"""

import argparse
import json
import os
import platform
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT), str(HERE), str(ROOT / "tests" / "helpers")]

DRY = "--dry-run" in sys.argv
if DRY:
    os.environ["TRITON_INTERPRET"] = "1"  # read when triton is imported

import torch  # noqa: E402
import triton  # noqa: E402
from steps import BLOCKS, SIZES, Engine, replayed  # noqa: E402

from generated import dspark  # noqa: E402
from generated.dspark import eager, kernels  # noqa: E402
from kgen.bench.launches import launches  # noqa: E402
from kgen.bench.timing import replay_times  # noqa: E402

DEVICE = torch.device("cpu" if DRY else "cuda")
CONTEXTS = (64,) if DRY else (131072, 2048, 393216, 32768)  # what matters most first
REQUESTS = (1, 3) if DRY else (1, 32, 8)
K, PAGE, LAYERS, RANK, HALF = (3, 4, 2, 8, 2) if DRY else (7, 32, 5, 512, 32)
HIDDEN, CAPTURED, VOCABULARY, PAGES = (16, 2, 64, 64) if DRY else (7168, 5, 163840, 4096)
WIDTH = RANK + 2 * HALF
EPS = 1e-6
SETTINGS = {
    "eager": {},
    "fused": {"fused": True},
    "overlap": {"overlap": True},
    "fused + overlap": {"fused": True, "overlap": True},
    "local_table": {"fused": True, "local_table": True},
    "local_table + overlap": {"fused": True, "overlap": True, "local_table": True},
}
FUSED_NORM = {"fused": True, "overlap": True, "fused_norm": True}


def configure(**switches):
    dspark.configure(
        **dict.fromkeys(("fused", "overlap", "fused_norm", "local_table"), False) | switches
    )


def nothing(**_):
    """A stage of the engine that costs nothing."""


class K3Engine:
    """An engine at K3 sizes whose own stages are those that the step may overlap, or none.

    `work`: sample and project do something. `norm`: so do the engine's norm and rope.
    """

    def __init__(self, context, requests, *, work, norm):
        seeded = torch.Generator(DEVICE).manual_seed(3)
        rows, blocks = requests, context // PAGE

        def floats(*shape, scale=1.0):
            made = torch.randn(shape, generator=seeded, device=DEVICE, dtype=torch.bfloat16)
            return made * scale

        def zeros(*shape, dtype=torch.int32):
            return torch.zeros(shape, dtype=dtype, device=DEVICE)

        # Old pages are anybody's; the last four of each request, which the step writes, are its own.
        own = 4 * rows
        table = torch.randint(own, PAGES, (rows, blocks), generator=seeded, device=DEVICE)
        table[:, -4:] = torch.arange(own, device=DEVICE).view(rows, 4)
        offsets = torch.full((1, rows, 2, blocks), -1, dtype=torch.int32, device=DEVICE)
        offsets[0, :, 0] = (2 * table).int()
        self.logits = floats(rows * (K + 1), VOCABULARY)
        self.captured = floats(rows * (K + 1), CAPTURED * HIDDEN)
        self.fc = floats(CAPTURED * HIDDEN, HIDDEN, scale=0.01)
        self.down = floats(HIDDEN, LAYERS * WIDTH, scale=0.01)
        self.table = floats(VOCABULARY, HIDDEN)
        self.norm_weight = floats(LAYERS, RANK)
        self.freqs = torch.randn(context + K + 1, HALF, 2, generator=seeded, device=DEVICE)
        self.step = dspark.DecodeStep(
            sample=self.sample if work else nothing,
            embed=self.embed,
            project=self.project if work else nothing,
            norm_rope=self.norm_rope if norm else nothing,
            begin_block=nothing,
            layer_latents=nothing,
            layer_norm_rope=self.layer_norm_rope if norm else nothing,
            attend=nothing,
            propose=nothing,
            block_offsets=offsets,
            block_counts=zeros(rows, dtype=torch.int64),
            block_tables=zeros(rows, blocks),
            accepted_tokens=zeros(rows, K + 1),
            num_accepted=zeros(rows),
            batch_to_slot=torch.arange(rows, device=DEVICE),
            ctx_len=torch.full((rows + 1,), context - 2 * PAGE, device=DEVICE),
            seq_lens=zeros(rows),
            target_kv_lens=zeros(rows),
            draft_tokens=zeros(rows, K),
            pool=[
                torch.zeros(PAGES, 1, 1, PAGE, WIDTH, dtype=torch.bfloat16, device=DEVICE)
                for _ in range(LAYERS)
            ],
            embed_table=self.table,
            norm_weight=self.norm_weight,
            freqs=self.freqs,
            G=rows,
            K=K,
            W=K,
            H=HIDDEN,
            max_ctx=context,
            mask_token_id=VOCABULARY - 1,
            eps=EPS,
            divisor=2,
            pool_index=0,
            num_contexts=0,
            num_seqs=rows,
        )

    def sample(self, *, target_tokens):
        torch.argmax(self.logits.view(*target_tokens.shape, -1), -1, out=target_tokens)

    def embed(self, *, embed_ids, embed_rows):
        torch.index_select(self.table, 0, embed_ids, out=embed_rows)

    def project(self, *, latents):
        hidden = torch.nn.functional.rms_norm(self.captured @ self.fc, (HIDDEN,))
        torch.mm(hidden, self.down, out=latents.view(latents.shape[0], -1))

    def norm_rope(self, *, staged, ctx_positions, normed):
        cos_sin = self.freqs[ctx_positions.flatten()]
        for layer in range(LAYERS):
            normed[layer].copy_(
                eager._norm_rope(staged[layer], self.norm_weight[layer], cos_sin, EPS)
            )

    def layer_norm_rope(self, *, block_latents, query_positions, block_normed, l):  # noqa: E741
        cos_sin = self.freqs[query_positions]
        block_normed.copy_(eager._norm_rope(block_latents, self.norm_weight[l], cos_sin, EPS))


# Bits.


def bits(engine):
    return {name: tensor.view(torch.uint8) for name, tensor in engine.tensors().items()}


def unequal(a, b):
    ones, twos = bits(a), bits(b)
    return [name for name in ones if not torch.equal(ones[name], twos[name])]


def captured(switches, steps):
    """A small engine whose step is captured once and replayed."""
    configure(**switches)
    return replayed(DEVICE, steps)


def ran(switches, steps):
    configure(**switches)
    engine = Engine(DEVICE)
    engine.run(steps)
    return engine


def poisoned(switches, steps):
    """G changes from step to step, and what both streams' allocators hand out is overwritten."""
    configure(**switches)
    engine = Engine(DEVICE)
    side = torch.cuda.Stream() if not DRY else None
    for number in range(steps):
        engine.step_number = number % 64
        requests = (1, 4, 2)[number % 3]
        engine.step(G=requests, num_contexts=1, num_seqs=5)
        for stream in (None, side):
            with torch.cuda.stream(stream):
                for size in (64, 512, 4096):
                    torch.full((size,), float("nan"), device=DEVICE)
    return engine


def equality(out):
    found = {}
    first = ran({}, 6)
    for name, switches in SETTINGS.items():
        found[f"{name}, eagerly"] = unequal(first, ran(switches, 6))
        if not DRY:
            found[f"{name}, replayed"] = unequal(first, captured(switches, 6))
    tree = {"fused": True, "fused_norm": True}
    one = ran(tree, 6)
    found["fused_norm, overlap and not"] = unequal(one, ran(FUSED_NORM, 6))
    if not DRY:
        found["fused_norm + overlap, replayed"] = unequal(one, captured(FUSED_NORM, 6))
    count = 12 if DRY else 1000
    serial = poisoned({"fused": True}, count)
    found[f"{count} steps of changing G, poisoned"] = unequal(
        serial, poisoned({"fused": True, "overlap": True}, count)
    )
    out["equality"] = found
    return [name for name, names in found.items() if names]


def compiled():
    """How many variants Triton has compiled of the package's kernels."""
    every = [each for name, each in vars(kernels).items() if name.endswith("_kernel")]
    caches = [cache for each in every for cache in getattr(each, "device_caches", {}).values()]
    return sum(len(cache[0]) for cache in caches)


def variants(out):
    """After warm-up neither G, lengths nor strides compile anything."""
    configure(**FUSED_NORM)
    dspark.warmup(
        DEVICE,
        K=[2, 3],
        K1=[3, 4],
        W=[2, 3],
        L=2,
        D=8,
        R=4,
        half=2,
        page_size=4,
        drop_overflow=0,
        blocks=BLOCKS,
        H=SIZES["H"],
    )
    before = compiled()
    dspark.no_jit()
    for switches in (FUSED_NORM, {"fused": True}):
        configure(**switches)
        engine = Engine(DEVICE)
        engine.run(2)
        engine.run(1, G=1, num_contexts=3)
        engine.run(1, K=2, W=2)
        engine.run(1, G=0, num_contexts=2, num_seqs=2)
    dspark.no_jit(False)
    out["variants"] = {"after warm-up": before, "after steps": compiled()}
    return [] if compiled() == before else ["variants"]


# Times.


def counted(engine, switches):
    configure(**switches)
    return launches(engine.step, DEVICE)


def times(out, write, left):
    rows = out["times"] = []
    for context in CONTEXTS:
        for requests in REQUESTS:
            if left() < 15:
                return
            row = {"context": context, "G": requests}
            alone = K3Engine(context, requests, work=False, norm=False)
            both = K3Engine(context, requests, work=True, norm=False)
            whole = K3Engine(context, requests, work=True, norm=True)
            cases = {
                "bookkeeping, eager": (alone, {}),
                "bookkeeping, fused": (alone, {"fused": True}),
                "bookkeeping, local_table": (alone, SETTINGS["local_table"]),
                "groups and norm, local_table": (
                    alone,
                    {**SETTINGS["local_table"], "fused_norm": True},
                ),
                "with sample and project, eager": (both, {}),
                "with sample and project, fused": (both, {"fused": True}),
                "with sample and project, fused + overlap": (both, SETTINGS["fused + overlap"]),
                "with sample and project, local_table + overlap": (
                    both,
                    SETTINGS["local_table + overlap"],
                ),
                "norm and rope too, eager": (whole, {}),
                "norm and rope too, fused + overlap": (whole, SETTINGS["fused + overlap"]),
                "norm and rope too, fused_norm + overlap": (whole, FUSED_NORM),
                "norm and rope too, fused_norm + local_table + overlap": (
                    whole,
                    {**FUSED_NORM, "local_table": True},
                ),
            }
            row["launches"] = {
                name: counted(engine, switches) for name, (engine, switches) in cases.items()
            }
            if not DRY:
                graphs = {n: switched(engine, switches) for n, (engine, switches) in cases.items()}
                measured = replay_times(graphs, calls=8, rounds=25)
                row["us"] = {name: round(t.median, 1) for name, t in measured.items()}
            rows.append(row)
            print(row, flush=True)
            write()


def switched(engine, switches):
    def run():
        configure(**switches)
        engine.step()

    return run


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", choices=("bits", "times"))
    parser.add_argument("--budget", type=float, default=150)
    parser.add_argument("--dry-run", action="store_true")
    asked = parser.parse_args()
    started = time.monotonic()
    out = {
        "card": torch.cuda.get_device_name() if not DRY else "none",
        "torch": torch.__version__,
        "triton": triton.__version__,
        "python": platform.python_version(),
        "date": time.strftime("%Y-%m-%d"),
    }

    def write():
        out["seconds"] = round(time.monotonic() - started, 1)
        (asked.out / f"step{'_' if asked.only else ''}{asked.only or ''}.json").write_text(
            json.dumps(out, indent=2) + "\n"
        )

    wrong = []
    for phase in (equality, variants) if asked.only != "times" else ():
        wrong += phase(out)
        print(json.dumps(out[phase.__name__]), flush=True)
        write()
    if asked.only != "bits":
        times(out, write, lambda: asked.budget - (time.monotonic() - started))
    out["wrong"] = wrong
    write()
    print("wrong:", wrong or "nothing", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
