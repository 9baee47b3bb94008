"""Gallery page: a picture of each scenario, with the command that draws the picture."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ipusim.app.compare.compare import compare
from ipusim.app.compare.comparison import Comparison
from ipusim.app.compare.comparison_files import comparison_chart
from ipusim.app.compare.link_loads import link_chart
from ipusim.app.render.execution_trace import execution_trace
from ipusim.app.render.figures import Chart, to_png
from ipusim.app.render.memory import memory_chart
from ipusim.app.render.titles import default_title
from ipusim.app.run_folder.report import picture_window
from ipusim.app.scenario import load_job, load_request
from ipusim.runs.execute import execute
from ipusim.runs.run import Run

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
#: Schedules of the tutorial's figures.
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
            links = link_chart(Comparison(compare(request, orders=self.orders)))
            assert links is not None, "of several orders"
            return links
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
        "One IPU runs the whole model, micro-batch by micro-batch; nothing is exchanged.",
        TUTORIAL,
    ),
    Picture(
        "tutorial_step2_sharding",
        "Two IPUs take turns: each waits while the other one computes, and every turn ends with a copy.",
        TUTORIAL,
    ),
    Picture(
        "tutorial_step3_pipelining",
        "The same halves as a pipeline: in the main phase both IPUs run the same kind of pass, each on a micro-batch "
        "of its own.",
    ),
    Picture(
        "tutorial_step4_configurable_stages",
        "Four stages by `splits`. In each time-step all IPUs wait for the slowest one, here IPU 3 with the last layers "
        "and the loss; so small passes are not much longer than what lies between them.",
        TUTORIAL,
    ),
    Picture(
        "schedules_four_ipus",
        "The schedules of the tutorial's figures: the parts of their time, and the two fastest on one time axis; "
        "[their numbers](schedules.md).",
        file="comparison.png",
        schedules=SCHEDULES,
    ),
    Picture(
        "gpu_schedules",
        "The GPU world's schedules in both sync modes, on the same IPU-Links. In lock-step a time-step is as long as "
        "its longest pass, so that a schedule which mixes passes waits for backward ones everywhere. Point-to-point, "
        "GPipe hides its sends behind passes, while 1F1B waits for most of them; [what each schedule waits and "
        "keeps, in closed form](bubbles.md).",
        file="comparison.png",
        schedules=("gpipe", "1f1b", "zero_bubble_h1"),
        syncs=("lock_step", "point_to_point"),
    ),
    Picture(
        "interleaved_1f1b",
        "Each IPU has two stages (the number before the dot), and a micro-batch goes round all IPUs twice. The ramps "
        "are little more than half as long as with the same work in one piece; there are twice as many sends.",
    ),
    Picture(
        "zero_bubble",
        "The backward pass in halves: the gradient of the input goes back at once, those of the weights are computed "
        "where an IPU would wait. All IPUs end at nearly the same time.",
        ("steps=1", "numerics=off"),
    ),
    Picture(
        "selection_orders",
        "Sixteen stages on a ladder of IPU-Links, whose boundaries carry unequal bytes: the routes of their copies "
        "under each selection order, and how busy each link is. AUTO chooses SNAKE; [the orders "
        "compared](selection_orders.md).",
        file="links.png",
        orders=ORDERS,
    ),
    Picture(
        "small_superstep",
        "With short passes and little to send, copies are half of the time, and their parts show: a sync, tiles that "
        "lay out what they send, the exchange, tiles that put away what came. "
        "[Measured ones](micro_benchmarks.md) take as long.",
    ),
    Picture(
        "digits_training",
        "An execution of the pipeline that learns the digits. The layers are small, so copies take most of it.",
        ("steps=1", "numerics=off"),
    ),
    Picture(
        "memory_by_schedule",
        "What each IPU holds under Grouped, over time and at its peak. The FIFO buffers of the first stage are what "
        "does not fit; they are allocated in full from the start. "
        "[All schedules compared](memory_by_schedule.md).",
        file="memory.png",
    ),
    Picture(
        "optimizer_state_offload",
        "The optimizer's state lies in the Streaming Memory beside the IPUs. For the weight update it is loaded, and "
        "stored again; four IPUs share the memory's bandwidth.",
    ),
    Picture(
        "concurrent_stages",
        "The third stage runs on all four IPUs at once (2.*n* to 5.*n*), each part on the same input. The pipeline is "
        "four places long, where seven stages one after another would ramp up for longer.",
    ),
    Picture(
        "overlapped_io",
        "I/O tiles (lower strips) read the next micro-batch and write the last results while the other tiles compute. "
        "The pipeline has two time-steps more, and in its main phase no pass waits for the host.",
    ),
    Picture(
        "host_embedding",
        "The rows of an embedding come from the host before each forward pass of stage 0 (dark), and their gradients "
        "go there behind each backward pass. The host looks nothing up before it has applied what came earlier, which "
        "IPU 0 waits for, and IPU 1 for IPU 0.",
    ),
    Picture(
        "variables_on_host",
        "The host keeps the optimizer's state and updates the weights. Gradients go there behind the last pass, and "
        "new weights come back; the host takes longer to read and write its buffers than either.",
    ),
    Picture(
        "recomputation",
        "Each backward pass but the last stage's has a forward pass that runs again one time-step before it. The trace "
        "is longer, and the FIFOs keep inputs alone.",
    ),
    Picture(
        "data_parallel_4x4",
        "Four replicas of a pipeline of four stages on 16 IPUs. Before each weight update they sum up their gradients "
        "by an all-reduce over the IPU-Links.",
        ("steps=1", "numerics=off"),
    ),
    Picture(
        "transformer_eight_ipus",
        "Embedding, six blocks and head of a causal transformer. The stages of the blocks are equal, and the ends of "
        "the pipeline wait for them.",
        ("steps=1", "numerics=off"),
    ),
    Picture(
        "measured_stages",
        "Four stages whose passes take as long as a file says. In each time-step of the main phase all IPUs wait for "
        "IPU 2, which has the slowest stage; to cut the model elsewhere would help.",
    ),
    Picture(
        "inference",
        "Forward passes only, in every IPU on another micro-batch, with synthetic data, which no host sends. With the "
        "host's, a time-step lasts as long as IPU 0 reads from it; the passes of so small a model are short beside it.",
        ("numerics=off", "use_synthetic_data=true"),
    ),
    Picture(
        "bert_large",
        "Twenty of the 2,050 micro-batches behind an update: IPU 0 runs the embedding with three layers, and the head, "
        "the other IPUs seven layers each. The weight update loads the optimizer's state and stores it again, which "
        "takes as long as it does after all of them.",
        ("pipeline.gradient_accumulation_count=20",),
    ),
    Picture(
        "bert_base",
        "The same of BERT-Base: IPU 0, with nothing but the embedding and the head, waits most of the time for the "
        "three others, of four layers each.",
        ("pipeline.gradient_accumulation_count=20",),
    ),
    Picture(
        "gpt2",
        "GPT-2's head scores 50,272 words at each of 1,024 positions, so that IPU 0 has more than half as much to do "
        "as the others.",
        ("pipeline.gradient_accumulation_count=20", "pipeline.repeat_count=1"),
    ),
    Picture(
        "conformer",
        "Sixteen of the 72 micro-batches behind an update. In each time-step the IPUs wait for the one with five "
        "blocks; the last IPU waits longest, for want of the CTC loss.",
        ("pipeline.gradient_accumulation_count=16",),
    ),
    Picture(
        "resnet50",
        "ResNet-50 as a pipeline of four IPUs, which its scenario is not: copies of the first stages' activations, "
        "26 MB a micro-batch, take a third of the time.",
        RESNET50_PIPELINE,
    ),
    Picture(
        "efficientnet_b4",
        "Twelve of the 256 micro-batches behind an update: IPU 0 has the large images, IPU 1 most of the blocks; "
        "both take nearly as long.",
        ("pipeline.gradient_accumulation_count=12",),
    ),
    Picture(
        "swin_tiny",
        "Sixteen of the 64 micro-batches behind an update. In each time-step the IPUs wait for the third, with five "
        "blocks of attention within windows.",
        ("pipeline.gradient_accumulation_count=16",),
    ),
    Picture(
        "small_cnn",
        "A weight update behind every micro-batch, on one IPU. To start the 34 compute sets of the forward pass, 49 of "
        "the backward pass and 20 of the update takes as long as the products in them.",
    ),
    Picture(
        "mnist_cnn",
        "Graphcore's Keras tutorial over two IPUs: half of the time goes to copies between them, 2 MB a micro-batch, "
        "and a quarter to images from the host. One IPU alone is faster.",
        ("pipeline.repeat_count=1",),
    ),
)


def gallery_page() -> str:
    """Return the page with all pictures, as Markdown."""
    text = "# Gallery\n\nWhat each scenario shows. `run` and `compare` write the pictures into `reports/<scenario>/`.\n"
    for each in GALLERY:
        command = each.command.replace(" --set ", " \\\n    --set ") if len(each.command) > 100 else each.command
        text += f"\n## [{each.scenario}](../scenarios/{each.scenario}.yaml)\n\n{each.says}\n"
        text += f"\n![{each.scenario}]({each.scenario}.png)\n\n```console\n$ {command}\n```\n"
    return text
