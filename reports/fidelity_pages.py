"""Pages that compare the simulator with measurements: whole trainings, products, and links with the host."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final

from ipusim.api import hardware, pricing
from ipusim.app.fidelity import micro_benchmarks as micro
from ipusim.app.fidelity import products, throughput_report
from ipusim.app.fidelity.product_rows import ProductRow
from ipusim.app.fidelity.throughputs import Prepared, SimulatedRow, prepare_rows, simulate_rows
from ipusim.app.fidelity.validation import Validation
from ipusim.app.study.result import table_markdown
from ipusim.base.cache import sharing
from ipusim.base.units import enumerated
from ipusim.hardware.rates import DEFAULT_RATES
from reports.fidelity_tries import with_shared_statistics

FLOAT_PARTIALS: Final = "system.matmuls.poplar_options.partialsType=float"
FLOAT_CONVOLUTIONS: Final = "system.convolutions.poplar_options.partialsType=float"
#: Setting of a slow host, for rows that their input may limit.
SLOW_INPUT: Final = "system.host.host_fill=260 MB/s"
NOTHING: Final = Fraction(0)
LAID_OUT: Final = dict.fromkeys(("product_layout_cycles", "pool_layout_cycles", "variable_layout_cycles"), NOTHING)
#: Conformer with a decoder that continues from all frames, and with CTC loss on the frames.
CTC: Final = ("model.layers.targets.count=304", "model.layers.loss={name: loss, type: ctc, labels: 48}")
#: Output head with weights separate from the embedding table, in eight parts.
HEAD: Final = (
    "model.layers.scores={name: scores, type: dense, units: 50272, use_bias: false, serialization_factor: 8, "
    "serialization_dimension: b_rows}"
)
#: Images of 197 patches instead of 196, as the class token adds a position.
CLASS_TOKEN: Final = ("data.shape=[16,3152,3]", "model.layers.line.target_shape=[197,768]")
#: ResNeXt-101 with all channels of 3 x 3 convolutions in one group: in the separate first block of each stage, and in
#: the repeated blocks.
IN_ONE_GROUP: Final = (
    *(f"model.layers.{at}.layers.conv2.groups=1" for at in (4, 7, 10, 13)),
    *(f"model.layers.{at}.layers.0.layers.conv2.groups=1" for at in (6, 9, 12, 15)),
)
HEADS: Final = "model.layers.4.layers.attention.layers.heads"
ONE_PRODUCT: Final = f"{HEADS}.split_qkv=false"
MERGED: Final = "system.maximum_cross_replica_sum_buffer_size=all"

#: Prerequisites for using the simulator's numbers.
TRUST: Final = """\
## What is modelled

- **Every product and convolution** by a search over its splits on the tiles: granularity of the matrix unit, loading
  of weights, exchange of both operands, partial sums and their reduction, and the memory it may take
  (`availableMemoryProportion`). [How close that comes](products.md).
- **Vector work** by kind, bound by loads and stores, and a fixed time for each compute set; every layer says how many
  it has. Adding gradients to their accumulators and the optimizer's update are such work.
- **Merged copies** by their parts: sync, copy before, exchange over the links' routes with their contention, copy
  behind. [How close those come](micro_benchmarks.md). All-reduce between replicas by rings on the pod's real links.
- **What a program lays out anew**: operands of each product, pools, and variables at an update. Products measured alone
  have none of it.
- **The host**: infeed and outfeed over PCIe, Streaming Memory for offloaded state, what a framework's host takes
  between two session runs, for an optimizer whose values it sends anew, and for optimizer state off chip, by machine.
- **Memory** of each IPU over time, the temporary memory of its largest product included. PopART, which PopTorch
  compiles to, computes activations again just before the gradients that need them (popart d2f20d7, irlowering.cpp), and
  Graphcore's programs keep what each layer puts out (`recompute_checkpoint_every_layer` in nlp/bert, vision/vit and
  nlp/gpt2 of graphcore/examples 3cc8f81), so that one layer is alive at a time. Moments of Adam and LAMB are in single
  precision there (PopART's `accl1_type` and `accl2_type`, PopTorch's optim.py). State off chip comes to an IPU for one
  variable after another there, as its scheduler keeps little alive (streamingmemoryopinserter.cpp); TensorFlow's for
  all of them.
- **Schedules and their phases** to the time-step, as Graphcore's compiler makes them, and real arithmetic.

## What is assumed

- That products were measured on a Bow: on a GC200 no rates within their ranges explain the rows.
- 4.7 vector operations for an exponential, logarithm, hyperbolic tangent or square root: the mean of PopLibs' cycles.
- That a host takes as long for each kilobyte whose optimizer state is off chip, and for each variable of an optimizer
  that is sent anew, on small pods as on large ones.
- The fixed cost of a global exchange, measured on the first generation (GC2), is the same in seconds on later ones,
  and the tiles' code around it in cycles. A Bow-2000's links are those of an M2000.
- Streaming Memory moves 8 GB/s for each of four IPUs, but for what `offchip_stream` adds to the optimizer's state. That
  rate takes moments to count as half of single precision, as TensorFlow's do here; PopART's and PyTorch's count whole.
  Rows of BERT would tell `offchip_stream` to within a factor of two.
- With PopART, PyTorch and TensorFlow 2 each variable takes its time behind each session run, with TensorFlow 1 none:
  of frameworks' defaults these have the least error, with sources left out and the layout of variables as it is.
- Tensors lie between layers as the next layer needs them, or are exchanged once with its operands.
- Dropout, masks and softmax run in the type of their input.
- Code on the tiles is estimated from two published profiles: so much for every program, and so much for each compute
  set that differs (say `code_bytes` where you know it). It refuses no program by itself, and of stages that are known
  by their cycles alone none is counted; verdicts say both.

The figures that are assumed say so in `ipusim devices m2000 --figures`.

## What is left out

- What Poplar's liveness analysis leaves between products.
- Exchanges of batch norm whose statistics several replicas share (tried above); the steps of a CTC loss from frame to
  frame in a pipeline whose decoder has a loss of its own.
- How evenly a tensor of a few elements more than a tile holds is laid out; tiles are taken to be alike.
- What the host does to make data: infeeds have theirs ready, unless the scenario limits them.
- Steps that follow each other wait for nothing but the framework's host; compilation, evaluation and checkpoints take
  no time.
- Other tenants of a pod, its network, and throttling.

## When not to trust it

- **Absolute times of small networks**, and of ResNets on several pods: see above.
- **Layers unlike a transformer's**: grouped convolutions, recurrences and large softmaxes are priced by the same rates,
  and nothing published holds them to account alone.
- **Sizes that fill no block** (197 positions, windows of 49): inputs and outputs are padded to the matrix unit's
  blocks, and rows to turns of a tile's workers, as PopLibs' planner does (poplibs 7eac0f26, ConvModel.cpp). It lays
  rows out in blocks too where one plan for all passes is cheaper than a plan for each (ConvPlan.cpp); plans are for
  each here. Fast transposes lay out no operand whose parts side by side are no multiple of 8 bytes (popops,
  Rearrange.cpp). How long that takes otherwise no source says, and no measured product has such sizes: left out.
- **The time for state off chip, and for an optimizer sent anew**, which rows of BERT alone tell.
- **A program whose options you do not know**: above, the type of partial sums, and the memory that products may take.
- **GC2**: no product measured on it is published; the rates come from a Bow.
- **Whether it just fits**: code is an estimate, and what lies between products is left out.

Which schedule, split or count is better rests on ratios, in which most of these errors cancel. Where two differ by
less than the errors above, measure: `ipusim validate --rows` and `--products` print the same tables for your own
measurements, `ipusim validate --fit` fits rates to them, and `pipeline.cycles` takes measured stages.
"""

#: Causes of errors in whole trainings, plus tried explanations; all figures are from runs.
TRAININGS: Final = """\
Errors here are with the rates in use. What a sentence says was tried was run with that setting, and nothing else
changed.

- **BERT in TensorFlow 2, {tensorflow2.errors}, and {base.errors}.** On 16 IPUs each replica streams the optimizer's
  state whole, as published configurations of TensorFlow 2 alone have it. Were streams as fast as the memory they come
  from is taken to be, it would be {tensorflow2_fast_streams} and {base_fast_streams}. Its products may take 0.19 of a
  tile's memory on the IPU that sets the pace (its published configuration), where PopART's may take 0.25: with 0.25 it
  is {tensorflow2_as_popart}. With gradients added up in place of a running mean it would be {tensorflow2_sum}, with
  partial sums in single precision {float_tensorflow2}. What is left is not known.
- **Attention of BERT.** Graphcore's programs put the kernels of queries, keys and values side by side, so that they
  are one product (nlp/bert in graphcore/examples c0239af and 3cc8f81). The scenarios have three, but where MLPerf's
  settings say one. With one product the rows of BERT-Large at sequence length 128, {large.errors}, would be
  {large_one_product}, and BERT-Base in TensorFlow 2 {base_one_product}. So something else takes as long in each
  micro-batch, which is not known.
- **ResNet-50, {resnet50.errors}.** Were variables not laid out anew at an update it would be {resnet50_not_laid_out};
  with nothing laid out for products either, {resnet50_nothing}.
- **ResNet-50 of MLPerf v1.0, {by_input.errors}**, of an older SDK. With input that comes as slowly as the first of
  them says, 260 MB/s to an IPU, {by_input_slow}: one rate of input is not why both are slow.
- **BERT-Large of MLPerf, {mlperf.errors}**, in three editions and on 16 to 256 IPUs. Its rates are of the blocks of
  training in ten logs each, by their time stamps, so that neither evaluation nor start is in them. An update lacks a
  time that does not grow with micro-batches, nor with the packs that a host feeds, of which on 256 IPUs there are fewer
  for each than on 64: were the optimizer's values sent in no time, these rows would be {mlperf_no_values}. The program
  sends them anew behind each session run, and PopART streams the weight decay of each variable by itself. That these
  take it is not measured: something else of each variable and update would look the same. Other programs in PopART
  time their session runs alone, and those in TensorFlow send a rate alone; they are nearer with that time for each
  variable than without, so that it may be another cost of one. The programs before v2.0
  did not merge sums of gradients, which follow each other there, variable after variable and IPU after IPU: with all of
  them at once the rows of v1.0 and v1.1, {mlperf_unmerged.errors}, would be {mlperf_merged}.
- **ResNet-50 on several pods, {pods.errors}.** With GW-Links at a tenth of their rate these would be
  {pods_slow_links}, with a hundred times their latency {pods_late_links}. The batch norm of all of MLPerf's programs
  takes its statistics over two IPUs, which is left out. With an all-reduce between these for each norm and pass,
  recomputed ones too, they would be {pods_norms}, and those on one pod that rates are fitted to
  {resnet50_norms}: it takes as long as lacks on several pods, and too long on one.
- **ResNeXt-101, {resnext101.errors}**, by two editions of a program. With partial sums of convolutions in single
  precision {float_resnext101}; its configuration asks for halves. With all channels of each convolution in one group in
  place of 32, {resnext101_one_group}; with nothing laid out anew {resnext101_nothing}. What takes as long is not known.
- **U-Net, {unet.errors}.** Copies of what its skip connections take count most: with links between IPUs at half their
  rate it would be {unet_slow_links}. With input that comes as slowly as that of ResNet-50 of MLPerf v1.0
  {unet_slow_input}; with partial sums of convolutions in single precision {float_unet}, where its configuration asks
  for halves. What takes as long is not known.
- **BERT's fine-tuning, {tuning.errors}.** Graphcore's PyTorch programs, and Hugging Face's Trainer, set their optimizer
  behind each step, and PopTorch sends its values before the next. Were they sent in no time, these would be
  {tuning_no_values}. The last two are by the clock of a whole training, of 284 and 135 s: a start of 13 s explains
  both, and without it each update takes 176 ms, where {tuning_last} are simulated.
- **GPT-2, {gpt2.errors}.** With its optimizer state on chip {gpt2_on_chip}; with partial sums in single precision
  {float_gpt2}; with a head of its own weights that scores the vocabulary in eight parts {gpt2_head}. What is left is
  not known.
- **Conformer, {conformer.errors}.** Its micro-batch takes {conformer.micro_batch} simulated, and {conformer.by_pair}
  by the rows with the fewest and the most. Left out is what the last IPU does beside one block: the decoder's
  attention to the encoder, and the CTC loss. That is not why: with this loss over all 304 frames, a compute set for
  each there and back, and the decoder on all of them, {conformer_ctc}. With partial sums in single precision
  the first row would be {float_conformer}; its configuration asks for halves. What takes as long is not known.
- **ViT, {vit.errors}.** With partial sums in single precision it would be {float_vit}; half ones are its program's
  default. With dropout of attention weights in both, {vit_dropped}; with queries, keys and values by a product each,
  {vit_split}; with the class token, a position more, {vit_token}. What takes as long is not known.
- **Small networks.** That of Graphcore's Keras tutorial as a pipeline is {piped.errors}, on one IPU {alone.errors},
  on two replicas {twins.errors}, with all gradients summed up at once {twins_merged}. With nothing laid out anew all
  six would be {mnist_nothing}, and with compute sets that take no time but their work's {mnist_sets}. The other network
  is a range, as editions of its tutorial differ by a factor of two: {small.errors}, by the number of its replicas; with
  nothing laid out anew {small_nothing}.

"""

#: Causes of errors on single products, with measurements that would decide between causes.
RESIDUALS: Final = """\
## Where it is off

What a sentence says was tried was run so: here the matrix unit's ceiling at its peak, and nothing else changed.

- *n* = 64 on 1024 x 1024: {few}.
- *n* of 8192 and more there: {large}; at peak {large_at_peak}, and the worst of smaller *n* would go from {small} to
  {small_at_peak}.
- *n* from 1024 to 4096 on 4096 x 4096: {stepped}; at peak {stepped_at_peak}.

What is left is not known. Values come off a picture, 2 to 3 % each. The plan that PopLibs logs for one of these
products, or a profile with its compute sets and exchanges, would tell more.

What the unseen sizes test is the rates, not the form of the model: that was chosen with all rows in sight. So were
the chip (on a GC200 no rates within their ranges explain the rows), the type of partial sums, which operand the
matrix unit holds, that no row hides in the start of a pass, and how much a rate's own range weighs.

"""


#: Causes of errors on micro-benchmarks, and conclusions.
LINKS: Final = """\
## What they say

- A superstep that exchanges a halo takes 3.7 to 5.2 us, of which its bytes are 0.3 to 0.5. The parts were profiled on
  16 IPUs; the fixed exchange is what is left of the rows in single precision. In half precision half the bytes came
  within 60 ns of the same time: the model, which gives the bytes their time on the links, is up to 5 % too fast there.
- Neighbours in an M2000 move 26.5 GB/s each way in Graphcore's own test, as many as 2 links at 83 % of 16 GB/s. Its
  4,096,000 kB are 1000 times 64 kB from each of 32 tiles of either IPU; whether more tiles would have used more links
  (there are 6 within a pair) nobody has published. What was measured is taken.
- A larger pod sums up gradients faster because its ends are joined. An all-reduce in a ring sends 2 (R - 1) / R of the
  buffer over each of its hops, R replicas. On the open rails of a POD16 a ring has to come back by the same links, so
  that it fills both directions of them; on the torus of a POD64 two rings go round in opposite directions, with half of
  the buffer each. That is (15 / 16) / (2 x 3 / 4) = 0.625 of the time. 16 IPUs of a POD64, or a POD64 that were open,
  take as long as a POD16 or longer.
- Small blocks and both sides at work make the host's figures a floor; Graphcore's rule of thumb for one of them is 46 %
  more.
"""


def fidelity_page(found: Validation) -> str:
    """Return the page on fidelity: verdicts, whole trainings, and their background."""
    rows = found.throughputs
    tables = [throughput_report.throughput_table(rows), throughput_report.throughput_error_table(rows)]
    text = (
        "# How far to trust it\n\n"
        "What `ipusim validate` prints of whole trainings, and what stands behind the numbers of a run.\n\n"
    )
    text += "".join(f"- {line}\n" for line in found.verdicts())
    text += "\n![Throughputs, simulated against published](throughputs.png)\n\n"
    text += "\n".join(f"## {table.title}\n\n{table_markdown(table)}" for table in tables)
    text += "".join(f"\n{line}\n" for line in throughput_report.throughput_words(rows))
    text += f"\n## Where it is off\n\n{residuals(found)}\n"
    for table in (found.dials, found.felt):
        text += f"## {table.title}\n\n{table_markdown(table)}\n" if table else ""
    return text + TRUST


@sharing
def residuals(found: Validation) -> str:
    """Describe tried explanations for trainings with large errors, each tested by a run."""
    rows = found.throughputs
    prepared = {each.row: each for each in found.prepared}

    def laid_out(rows: Sequence[SimulatedRow]) -> list[Prepared]:
        return [prepared[each.row] for each in rows]

    def priced(rows: Sequence[SimulatedRow], **times: Fraction) -> str:
        return _priced(laid_out(rows), **times)

    def as_fast_as_memory(rows: Sequence[SimulatedRow]) -> str:
        # Simulated cycles exclude off-chip time, so a new rate needs no new simulation.
        rates = DEFAULT_RATES.with_values(offchip_stream_ns=NOTHING)
        return _errors([each.with_rates(rates) for each in rows])

    # Errors by the rates in use, as for the tried settings.
    rows = [replace(each, unseen=None) for each in rows if each.row.use != "input" or each.row.model == "resnet50"]
    gpt2, tensorflow2 = _rows_of(rows, "gpt2", "pytorch"), _rows_of(rows, "bert_large", "tensorflow2")
    tuning = [each for each in rows if each.row.model.startswith("squad")]
    base = _rows_of(rows, "bert_base", "tensorflow2")
    large = [each for each in rows if each.row.model == "bert_large" and "data.length" not in str(each.row.settings)]
    mnist = _rows_of(rows, "mnist_cnn", "")
    twins = [each for each in mnist if (each.row.count, each.row.ipus) == (1, 2)]
    resnet50 = [each for each in _rows_of(rows, "resnet50", "tensorflow1") if each.row.use == "fitted"]
    resnext101, unet = _rows_of(rows, "resnext101", "tensorflow1"), _rows_of(rows, "unet", "tensorflow2")
    by_input, pods = ([each for each in rows if each.row.use == use] for use in ("input", "pods"))
    small = sorted(_rows_of(rows, "small_cnn", ""), key=lambda each: each.row.ipus)
    conformer, vit = _rows_of(rows, "conformer", "pytorch"), _rows_of(rows, "vit", "pytorch")
    mlperf = _rows_of(rows, "bert_large_512", "popart")
    # Simulated cycles exclude the host's time, so a new rate needs no new simulation.
    no_values = DEFAULT_RATES.with_values(optimizer_value_ns=NOTHING)
    unmerged = [each for each in mlperf if each.row.source.startswith("MLPerf v1")]
    return TRAININGS.format(
        conformer=Residual.of(conformer),
        float_conformer=_tried(conformer[:1], FLOAT_PARTIALS),
        conformer_ctc=_tried(conformer, *CTC),
        by_input=Residual.of(by_input),
        by_input_slow=_tried(by_input, SLOW_INPUT),
        pods=Residual.of(pods),
        pods_slow_links=priced(pods, gateway_link_bytes_per_s=Fraction(1, 10)),
        pods_norms=_errors(with_shared_statistics(laid_out(pods))),
        resnet50_norms=_errors(with_shared_statistics(laid_out([each for each in resnet50 if each.row.ipus > 4]))),
        pods_late_links=priced(pods, gateway_latency_ns=Fraction(100)),
        mlperf=Residual.of(mlperf),
        mlperf_unmerged=Residual.of(unmerged),
        mlperf_merged=_tried(unmerged, MERGED),
        mlperf_no_values=_errors([each.with_rates(no_values) for each in mlperf]),
        tuning=Residual.of(tuning),
        tuning_no_values=_errors([each.with_rates(no_values) for each in tuning]),
        tuning_last=f"{tuning[-1].seconds * 1e3:.0f} ms",
        small=Residual.of(small),
        small_nothing=priced(small, **LAID_OUT),
        piped=Residual.of([each for each in mnist if each.row.count > 1]),
        alone=Residual.of([each for each in mnist if each.row.ipus == 1]),
        twins=Residual.of(twins),
        twins_merged=_tried(twins, MERGED),
        mnist_sets=priced(mnist, compute_set_cycles=NOTHING),
        mnist_nothing=priced(mnist, **LAID_OUT),
        resnext101=Residual.of(resnext101),
        float_resnext101=_tried(resnext101, FLOAT_CONVOLUTIONS),
        resnext101_one_group=_tried(resnext101, *IN_ONE_GROUP),
        resnext101_nothing=priced(resnext101, **LAID_OUT),
        unet=Residual.of(unet),
        unet_slow_links=priced(unet, machine_rung_bytes_per_s=Fraction(1, 2), link_bytes_per_s=Fraction(1, 2)),
        unet_slow_input=_tried(unet, SLOW_INPUT),
        float_unet=_tried(unet, FLOAT_CONVOLUTIONS),
        gpt2=Residual.of(gpt2),
        gpt2_on_chip=_tried(gpt2, "pipeline.offload_weight_update_variables=false"),
        gpt2_head=_tried(gpt2, HEAD),
        float_gpt2=_tried(gpt2, FLOAT_PARTIALS),
        tensorflow2=Residual.of(tensorflow2),
        tensorflow2_fast_streams=as_fast_as_memory(tensorflow2),
        base=Residual.of(base),
        base_fast_streams=as_fast_as_memory(base),
        base_one_product=_tried(base, ONE_PRODUCT),
        large=Residual.of(large),
        large_one_product=_tried(large, ONE_PRODUCT),
        tensorflow2_as_popart=_tried(tensorflow2, "system.matmuls.poplar_options.availableMemoryProportion=0.25"),
        tensorflow2_sum=_tried(tensorflow2, "pipeline.reduction_method=SUM"),
        float_tensorflow2=_tried(tensorflow2, FLOAT_PARTIALS),
        vit=Residual.of(vit),
        float_vit=_tried(vit, FLOAT_PARTIALS),
        vit_dropped=_tried(vit, f"{HEADS}.dropout=0.1"),
        vit_split=_tried(vit, f"{HEADS}.split_qkv=true"),
        vit_token=_tried(vit, *CLASS_TOKEN),
        resnet50=Residual.of(resnet50),
        resnet50_not_laid_out=priced(resnet50, variable_layout_cycles=NOTHING),
        resnet50_nothing=priced(resnet50, **LAID_OUT),
    )


def _rows_of(rows: Sequence[SimulatedRow], model: str, framework: str) -> list[SimulatedRow]:
    return [each for each in rows if (each.row.model, each.row.framework) == (model, framework)]


def _tried(rows: Sequence[SimulatedRow], *settings: str) -> str:
    """Return the errors of rows with other settings."""
    others = [replace(each.row, settings=(*each.row.settings, *settings)) for each in rows]
    return _errors(simulate_rows(prepare_rows(others)))


def _priced(rows: Sequence[Prepared], **times: Fraction) -> str:
    """Return the errors of rows with some rates multiplied by factors."""
    rates = DEFAULT_RATES.with_values(**{name: getattr(DEFAULT_RATES, name) * by for name, by in times.items()})
    return _errors(simulate_rows(rows, rates))


@dataclass(frozen=True)
class Residual:
    """Texts on the errors of some rows, such as those of one model in one framework.

    Attributes:
        errors: error of each row.
        micro_batch: simulated time of a micro-batch.
        by_pair: time of a micro-batch from the published rows with the fewest and the most micro-batches.
    """

    errors: str
    micro_batch: str
    by_pair: str

    @classmethod
    def of(cls, rows: Sequence[SimulatedRow]) -> Residual:
        """Compute the texts of rows."""
        least, most = (by(rows, key=lambda each: each.row.count) for by in (min, max))
        counts = most.row.count - least.row.count
        pair = (most.seconds_published - least.seconds_published) / counts if counts else 0.0
        return cls(
            errors=_errors(rows),
            micro_batch=_milliseconds(rows[0].time.micro_batch),
            by_pair=_milliseconds(pair),
        )


def _errors(rows: Sequence[SimulatedRow]) -> str:
    return enumerated(f"{abs(round(each.judged, 2)) and each.judged:+.0%}" for each in rows)


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.2f} ms"


def products_page(found: Validation) -> str:
    """Return the page that compares priced dense products with measured ones."""
    rows = [each.row for each in found.products]
    text = (
        "# Dense products, measured and modelled\n\n"
        "What `ipusim validate` prints: a search over the splits of a product over tiles, four rates, and products "
        "measured on hardware. Every pass of a scenario is priced by it.\n\n"
        "![TFLOP/s by shape, measured and modelled](products.png)\n\n"
    )
    text += f"{' '.join(products.words(rows, found.chip, fitted=found.fitted))}\n\n"
    tables = (
        products.error_table(found.products),
        products.planner_rate_table(rows, found.chip),
        products.product_table(found.products),
    )
    text += product_residuals(rows, found.chip)
    return text + "\n".join(f"## {table.title}\n\n{table_markdown(table)}" for table in tables)


def product_residuals(rows: Sequence[ProductRow], chip: hardware.IpuSpec) -> str:
    """Describe tried explanations for products with large errors, each tested by a run."""
    square = [row for row in rows if row.m == row.k == 1024]
    few = [row for row in square if row.n == 64]
    large, small = ([row for row in square if (row.n >= 8192) == is_large] for is_large in (True, False))
    stepped = [row for row in rows if row.m == row.k == 4096 and 1024 <= row.n <= 4096]
    now = pricing.DEFAULT_PLANNER_RATES
    peak = replace(now, amp_ceiling=1.0)

    def errors(of: Sequence[ProductRow], rates: pricing.PlannerRates = now) -> list[float]:
        return [products.tflops(row, chip, rates) / row.tflops - 1 for row in of]

    def between(found: Sequence[float]) -> str:
        return f"{min(found):+.1%} to {max(found):+.1%}"

    return RESIDUALS.format(
        few=between(errors(few)),
        large=between(errors(large)),
        large_at_peak=between(errors(large, peak)),
        small=f"{max(errors(small), key=abs):+.1%}",
        small_at_peak=f"{max(errors(small, peak), key=abs):+.1%}",
        stepped=between(errors(stepped)),
        stepped_at_peak=between(errors(stepped, peak)),
    )


def micro_benchmarks_page(found: Validation) -> str:
    """Return the page that compares micro-benchmarks of IPUs and hosts with published figures."""
    text = (
        "# Micro-benchmarks, published and simulated\n\n"
        "What `ipusim validate` prints: single supersteps, transfers, collectives and host copies, each priced as in a "
        "run.\n\n"
    )
    text += f"{table_markdown(micro.benchmark_table(found.benchmarks))}\n{LINKS}\n"
    return text + "".join(f"- {line}\n" for line in micro.benchmark_words(found.benchmarks))
