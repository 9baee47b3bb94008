"""Gallery page: a picture of each scenario, with the command that draws the picture."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ipusim.app.compare.compare import compare
from ipusim.app.compare.comparison import Comparison
from ipusim.app.compare.comparison_files import comparison_chart
from ipusim.app.compare.link_loads import link_chart, runs_by_order
from ipusim.app.render.execution_trace import execution_trace
from ipusim.app.render.figures import Chart, to_png
from ipusim.app.render.memory import memory_chart
from ipusim.app.render.titles import default_title
from ipusim.app.run_folder.report import picture_window
from ipusim.app.scenario import load_job, load_request
from ipusim.runs.execute import execute
from ipusim.runs.run import Run

#: Folder of all scenarios.
SCENARIOS = Path(__file__).parent.parent / "scenarios"

#: Changes that fit the tutorial's model into a picture: few micro-batches with visible numbers, no arithmetic.
TUTORIAL = ("steps=1", "numerics=off", "pipeline.gradient_accumulation_count=8")
#: Graphcore's ResNet-50 as a pipeline on four IPUs: a single replica with fewer micro-batches.
RESNET50_PIPELINE = (
    "system.auto_select_ipus=4",
    "pipeline.schedule=grouped",
    "pipeline.device_mapping=[0,1,2,3]",
    "pipeline.splits=[conv2_next_out0,conv3_first_out,conv4_next_out0]",
    "infeed.element_bytes=2408448",
    "pipeline.micro_batch_size=16",
    "pipeline.gradient_accumulation_count=16",
)
#: Schedules of Graphcore's tutorial.
SCHEDULES = ("grouped", "interleaved", "sequential")
#: Selection orders in page order.
ORDERS = ("ZIGZAG", "SNAKE", "HOOF")


@dataclass(frozen=True)
class Picture:
    """Picture of the gallery.

    Attributes:
        scenario: name of the scenario.
        says: description of the picture.
        changes: changed values of the scenario.
        file: picture file of the run or comparison.
        schedules: compared schedules; empty for a single run.
        syncs: sync modes of the compared schedules; empty for the schedules' defaults.
        orders: selection orders for a chart of the system's links; empty for other pictures.
    """

    scenario: str
    says: str
    changes: tuple[str, ...] = ()
    file: str = "trace.png"
    schedules: tuple[str, ...] = ()
    syncs: tuple[str, ...] = ()
    orders: tuple[str, ...] = ()

    @property
    def command(self) -> str:
        """Command that draws the picture."""
        words = [f"ipusim {'compare' if self.schedules or self.orders else 'run'} scenarios/{self.scenario}.yaml"]
        words += [f"--orders {','.join(self.orders)}"] if self.orders else []
        words += [f"--schedules {','.join(self.schedules)}"] if self.schedules else []
        words += [f"--sync {','.join(self.syncs)}"] if self.syncs else []
        return " ".join([*words, *(f"--set {change}" for change in self.changes)])

    def run(self) -> Run:
        """Return the run of the scenario with the picture's changes."""
        return execute(load_job(SCENARIOS / f"{self.scenario}.yaml", self.changes))

    def figure(self) -> Chart:
        """Run the scenario and return the picture as a figure."""
        if self.orders:
            request = load_request(SCENARIOS / f"{self.scenario}.yaml", self.changes)
            return link_chart(runs_by_order(Comparison(compare(request, orders=self.orders))))
        if self.schedules:
            request = load_request(SCENARIOS / f"{self.scenario}.yaml", self.changes)
            return comparison_chart(Comparison(compare(request, self.schedules, self.syncs)))
        result = self.run()
        shown = picture_window(result.timeline)
        if self.file == "memory.png":
            return memory_chart(result.timeline, result.memory, shown)
        return execution_trace(result.timeline, shown.start, shown.end, title=default_title(result.timeline, shown))

    def draw(self) -> bytes:
        """Run the scenario and return the picture as PNG."""
        return to_png(self.figure())


GALLERY = (
    Picture(
        "tutorial_step1_single_ipu",
        "One IPU alternates forward and backward passes of the whole model, without any exchange.",
        TUTORIAL,
    ),
    Picture(
        "tutorial_step2_sharding",
        "Two IPUs take turns: one computes (coloured), the other waits (grey), and a copy (green) ends each turn.",
        TUTORIAL,
    ),
    Picture(
        "tutorial_step3_pipelining",
        "In the main phase both IPUs compute at once, with a different micro-batch on each IPU.",
    ),
    Picture(
        "tutorial_step4_configurable_stages",
        "IPU 3 has the last layers and the loss, and the other IPUs wait for IPU 3 in each time-step (grey). Copies "
        "(green) take almost as long as the small passes.",
        TUTORIAL,
    ),
    Picture(
        "schedules_four_ipus",
        "Interleaved has gaps in main, where forward passes wait for backward passes; Grouped has no gaps. Above: "
        "parts of the time; below: the two fastest schedules. [Times](schedules.md).",
        file="comparison.png",
        schedules=SCHEDULES,
    ),
    Picture(
        "gpu_schedules",
        "In lock-step 1F1B and zero bubble have gaps in main, as each time-step mixes short and long passes. "
        "Point-to-point, GPipe hides most copies behind passes, and zero bubble waits least. [Closed "
        "forms](bubbles.md).",
        file="comparison.png",
        schedules=("gpipe", "1f1b", "zero_bubble_h1"),
        syncs=("lock_step", "point_to_point"),
    ),
    Picture(
        "interleaved_1f1b",
        "Each IPU has two stages (the number before the dot), and each micro-batch visits all IPUs twice. The ramps "
        "last little more than half as long as with one stage per IPU.",
    ),
    Picture(
        "zero_bubble",
        "Input gradients (orange) go back at once; weight gradients (green) fill waits. All IPUs end at nearly the "
        "same time.",
        ("steps=1", "numerics=off"),
    ),
    Picture(
        "selection_orders",
        "Arrows are routes of copies, and their widths are link loads. HOOF sends the largest tensors over the narrow "
        "rails; AUTO chooses SNAKE. [Times](selection_orders.md).",
        file="links.png",
        orders=ORDERS,
    ),
    Picture(
        "small_superstep",
        "Half of the time goes into copies, with all parts visible: sync, copy before, exchange, copy after. "
        "[Measured supersteps](micro_benchmarks.md) take as long.",
    ),
    Picture(
        "digits_training",
        "The layers are small, so copies (green) take as much time as useful compute.",
        ("steps=1", "numerics=off"),
    ),
    Picture(
        "memory_by_schedule",
        "On IPU 0 the FIFO buffers (light blue) push the peak above the memory (dashed line). The buffers are "
        "allocated in full from the start. [All schedules compared](memory_by_schedule.md).",
        file="memory.png",
    ),
    Picture(
        "optimizer_state_offload",
        "For the weight update each IPU loads the optimizer's state from Streaming Memory and stores the new state, "
        "at a third of the whole time.",
    ),
    Picture(
        "concurrent_stages",
        "The third stage has four parts (2.*n* to 5.*n*) that run at once, a part on each IPU. Ramps are as long as "
        "with four stages, not seven.",
    ),
    Picture(
        "overlapped_io",
        "I/O tiles (lower strips) read the next micro-batch and write results during the passes, so no pass in main "
        "waits for the host.",
    ),
    Picture(
        "host_embedding",
        "Before each forward pass IPU 0 fetches rows from the host (dark), and waits until the host has applied "
        "earlier gradients (hatched). IPU 1 waits for IPU 0.",
    ),
    Picture(
        "variables_on_host",
        "The largest part of the weight update is host wait: the host reads gradients and writes weights more slowly "
        "than IPUs send and receive.",
    ),
    Picture(
        "recomputation",
        "A recomputation (yellow) runs one time-step before each backward pass, except on the last IPU. FIFO buffers "
        "hold only inputs.",
    ),
    Picture(
        "data_parallel_4x4",
        "The picture shows one of four equal replicas. Before the weight update an all-reduce over the IPU-Links sums "
        "the gradients of all replicas.",
        ("steps=1", "numerics=off"),
    ),
    Picture(
        "transformer_eight_ipus",
        "Six IPUs have a block each and equal passes; the first and the last IPU, with embedding and head, mostly "
        "wait.",
        ("steps=1", "numerics=off"),
    ),
    Picture(
        "measured_stages",
        "IPU 2 has the slowest stage, and the other IPUs wait (grey). A different split would help.",
    ),
    Picture(
        "inference",
        "There are only forward passes, and each IPU works on a different micro-batch. The data is synthetic; with "
        "real data each time-step would last as long as a read from the host.",
        ("numerics=off", "use_synthetic_data=true"),
    ),
    Picture(
        "bert_large",
        "Twenty of 2,050 micro-batches: IPU 0 has embedding, three layers and head, the other IPUs seven layers each. "
        "The weight update lasts as long as after all 2,050.",
        ("pipeline.gradient_accumulation_count=20",),
    ),
    Picture(
        "bert_base",
        "IPU 0 has only embedding and head, and mostly waits for the other IPUs with four layers each.",
        ("pipeline.gradient_accumulation_count=20",),
    ),
    Picture(
        "gpt2",
        "The head scores 50,272 words at each of 1,024 positions, so IPU 0 has more than half of the work of another "
        "IPU.",
        ("pipeline.gradient_accumulation_count=20", "pipeline.repeat_count=1"),
    ),
    Picture(
        "conformer",
        "Sixteen of 72 micro-batches: IPU 2 has five blocks, more than any other IPU. The last IPU waits longest, "
        "because the scenario leaves out the CTC loss.",
        ("pipeline.gradient_accumulation_count=16",),
    ),
    Picture(
        "resnet50",
        "ResNet-50 as a pipeline over four IPUs, unlike its scenario: copies of the first stages' activations (26 MB "
        "per micro-batch) take a third of the time.",
        RESNET50_PIPELINE,
    ),
    Picture(
        "efficientnet_b4",
        "Twelve of 256 micro-batches: IPU 0 has the large images, IPU 1 most of the blocks, and both take nearly the "
        "same time.",
        ("pipeline.gradient_accumulation_count=12",),
    ),
    Picture(
        "swin_tiny",
        "Sixteen of 64 micro-batches: IPU 2 has five blocks of window attention and sets the length of each time-step.",
        ("pipeline.gradient_accumulation_count=16",),
    ),
    Picture(
        "small_cnn",
        "One IPU updates the weights after every micro-batch. Starting the compute sets (34 forward, 49 backward, 20 "
        "in the update) takes as long as the products inside.",
    ),
    Picture(
        "mnist_cnn",
        "Half of the time goes into copies between the IPUs (2 MB per micro-batch), and a quarter into images from "
        "the host. One IPU alone is faster.",
        ("pipeline.repeat_count=1",),
    ),
)


def gallery_page() -> str:
    """Return the page with all pictures, as Markdown."""
    text = (
        "# Gallery\n\nFind a picture of your case here: each section names a scenario, says what to look at, and ends "
        "with the command of the picture. `python -m reports` draws all pictures from these scenarios; the commands "
        "write them into `reports/<scenario>/`.\n"
    )
    for entry in GALLERY:
        command = entry.command.replace(" --set ", " \\\n    --set ") if len(entry.command) > 100 else entry.command
        text += f"\n## [{entry.scenario}](../scenarios/{entry.scenario}.yaml)\n\n{entry.says}\n"
        text += f"\n![{entry.scenario}]({entry.scenario}.png)\n\n```console\n$ {command}\n```\n"
    return text
