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
from ipusim.app.fidelity.throughputs import PreparedRow, SimulatedRow, prepare_rows, simulate_rows
from ipusim.app.fidelity.validation import Validation
from ipusim.app.study.result import table_markdown
from ipusim.base.cache import sharing
from ipusim.base.units import enumerated
from ipusim.hardware.rates import DEFAULT_RATES
from reports.fidelity_tries import with_shared_statistics

#: Setting of partial sums in single precision, for products.
FLOAT_PARTIALS: Final = "system.matmuls.poplar_options.partialsType=float"
#: The same setting for convolutions.
FLOAT_CONVOLUTIONS: Final = "system.convolutions.poplar_options.partialsType=float"
#: Setting of a slow host, for rows that their input may limit.
SLOW_INPUT: Final = "system.host.host_fill=260 MB/s"
#: Factor that removes the time of a rate.
NOTHING: Final = Fraction(0)
#: Factors that remove the time of all changes of layout.
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
#: Path of BERT's attention heads.
HEADS: Final = "model.layers.4.layers.attention.layers.heads"
#: Setting of a single product for queries, keys and values.
ONE_PRODUCT: Final = f"{HEADS}.split_qkv=false"
#: Setting to merge all sums of gradients.
MERGED: Final = "system.maximum_cross_replica_sum_buffer_size=all"

#: Page text: modelled, assumed and missing parts.
TRUST: Final = """\
## What is modelled

- **Every product and convolution**: a search over splits on the tiles. The price covers the granularity of the matrix
  unit, loading of weights, exchange of both operands, and reduction of partial sums, within the permitted memory
  (`availableMemoryProportion`). [Errors of products](products.md).
- **Vector work** by kind: limited by loads and stores, with a fixed time per compute set. Each layer states its number
  of compute sets. Gradient accumulation and optimizer updates are vector work too.
- **Merged copies** by their parts: sync, copy before, exchange over the routes with contention, copy after. [Errors of
  copies](micro_benchmarks.md). Collectives between replicas follow real links of the pod. Each round is a superstep
  with a sync and an exchange between IPUs, as in PopLibs (lib/popops/ReplicatedCollectives.cpp before 887b9d3a).
- **Changes of layout within a program**: operands of products, pools, and variables at an update. Single measured
  products need no change of layout.
- **The host**: infeed and outfeed over PCIe, and Streaming Memory for offloaded state. A framework's host also takes
  time between session runs, for new optimizer values, and for optimizer state off chip.
- **Memory** of each IPU over time, including the temporary memory of the largest product. PopART, the compiler below
  PopTorch, recomputes activations just before the gradients that need them (popart d2f20d7, irlowering.cpp).
  Graphcore's programs keep the output of each layer (`recompute_checkpoint_every_layer` in nlp/bert, vision/vit and
  nlp/gpt2 of graphcore/examples 3cc8f81), so one layer is alive at a time. PopART keeps moments of Adam and LAMB in
  single precision (`accl1_type`, `accl2_type`; PopTorch's optim.py), and so does BERT in TensorFlow
  (nlp/bert/tensorflow1/ipu_optimizer.py in 09b7c67, nlp/bert/tensorflow2/keras_extensions/optimization.py in 3cc8f81).
  State off chip reaches an IPU one variable at a time: PopART's scheduler keeps few tensors alive
  (streamingmemoryopinserter.cpp), and in TensorFlow's compiler a load waits for the store before it
  (graphcore/tensorflow d9e38abd, remote_parameter_parallel_combiner.cc).
- **Schedules and phases** to the time-step, as Graphcore's compiler makes them, and real arithmetic.

## What is assumed

- The measured products ran on a Bow: on a GC200 no rates within the plausible ranges explain the rows.
- An exponential, logarithm, hyperbolic tangent or square root takes 4.7 vector operations, the mean of PopLibs' cycles.
- The host's time per kilobyte of off-chip optimizer state, and per variable with new optimizer values, is equal on
  small and large pods.
- The fixed cost of a global exchange, measured on the first generation (GC2), takes the same seconds on later
  generations, and the surrounding code the same cycles. A Bow-2000 has the links of an M2000.
- Streaming Memory moves 8 GB/s for each of a machine's four IPUs, and `offchip_stream` adds time for optimizer state.
  The rate follows from its source, and is in no fit. Its plausible range reaches from nothing to four times its value.
- In PopART and TensorFlow each variable takes host time after a session run. With no such time in TensorFlow 1 the
  mean error of rows that fit rates, with sources left out, is 0.1 points larger, and that of ResNets 0.1 points
  smaller. In PyTorch each value of each variable takes an equal time. The numbers of values come from the programs'
  sources.
- Each round of a collective takes the measured fixed cost of a superstep, which includes code of the tiles. PopLibs
  chooses an algorithm by topology and bytes; ipusim takes the fastest.
- Only in PyTorch does the host take time by the bytes of weights with state off chip. A fit to the other frameworks
  gives 124 ns for each kilobyte, and the mean error of all rows grows by 0.1 points.
- Between layers a tensor has the layout of the next layer, or moves once, together with the next layer's operands.
- Dropout, masks and softmax run in the type of their input.
- Code on the tiles is estimated from two published profiles: a part for every program, and a part for each different
  compute set (state `code_bytes` if you know the size). The estimate alone never refuses a program, and stages known
  only by cycles have no code. Verdicts mention both cases.

`ipusim devices m2000 --figures` marks assumed figures.

## What is left out

- Tensors that Poplar's liveness analysis keeps between products.
- Exchanges of batch norm with statistics shared by several replicas (tried above), and the steps of a CTC loss from
  frame to frame in a pipeline whose decoder has a separate loss.
- Uneven layouts of tensors with a few more elements than a tile holds; all tiles count as equal.
- The host's work for making data: infeeds have data ready, unless the scenario limits them.
- Waits between steps, except for the framework's host. Compilation, evaluation and checkpoints take no time.
- Other users of a pod, the pod's network, and throttling.

## When not to trust it

- **Absolute times of small networks**, and of ResNets on several pods: see above.
- **Layers unlike a transformer's**: the same rates price grouped convolutions, recurrences and large softmaxes, without
  a published measurement of these layers alone.
- **Sizes that fill no block** (197 positions, windows of 49): inputs and outputs are padded to blocks of the matrix
  unit, and rows to turns of a tile's workers, as in PopLibs' planner (poplibs 7eac0f26, ConvModel.cpp). PopLibs also
  lays rows out in blocks if one plan for all passes is cheaper than a plan for each pass (ConvPlan.cpp); ipusim makes
  a plan for each pass. Fast transposes need parts of a multiple of 8 bytes (popops, Rearrange.cpp). The time of other
  transposes has no source and no measured product, and is left out.
- **The time for state off chip, and for new optimizer values**: only rows of BERT determine these rates.
- **Programs with unknown options**: the type of partial sums, and the memory for products, change the time as shown
  above.
- **GC2**: no published product ran on a GC2; the rates come from a Bow.
- **Programs that barely fit**: code is an estimate, and tensors between products are left out.

The choice of a schedule, split or count rests on ratios, and most of these errors cancel in ratios. If two plans differ
by less than the errors above, measure. `ipusim validate --rows` and `--products` print these tables for your
measurements, `ipusim validate --fit` fits rates to them, and `pipeline.cycles` accepts measured stages.
"""

#: Causes of errors in whole trainings, plus tried explanations; all figures are from runs.
TRAININGS: Final = """\
All errors here are with the present rates. Each experiment changed only the named setting.

- **BERT in TensorFlow 2: Large {tensorflow2.errors}, Base {base.errors}.** On 16 IPUs each replica streams the whole
  optimizer state, which only published configurations of TensorFlow 2 do. With streams at the assumed speed of
  Streaming Memory, Large has {tensorflow2_fast_streams} and Base {base_fast_streams}. Products of Large may take 0.19
  of a tile's memory on the slowest IPU (published configuration), but 0.25 in PopART: 0.25 gives
  {tensorflow2_as_popart}. Summing gradients instead of a running mean gives {tensorflow2_sum}, partial sums in single
  precision {float_tensorflow2}. The cause is unknown.
- **Attention of BERT.** Graphcore's programs place the kernels of queries, keys and values side by side, as one product
  (nlp/bert in graphcore/examples c0239af and 3cc8f81). The scenarios have three products, unless MLPerf's settings say
  otherwise. One product changes BERT-Large at sequence length 128 from {large.errors} to {large_one_product}, and
  BERT-Base in TensorFlow 2 to {base_one_product}. So an unknown part of each micro-batch takes as long as the
  difference.
- **ResNet-50: {resnet50.errors}.** Without a new layout of variables at updates {resnet50_not_laid_out}, and without
  new layouts of products {resnet50_nothing}.
- **ResNet-50 of MLPerf v1.0: {by_input.errors}**, with an older SDK. If input arrives at 260 MB/s per IPU, the rate of
  the first row, {by_input_slow}: a single rate of input does not explain both rows.
- **BERT-Large of MLPerf: {mlperf.errors}**, in three editions, on 16 to 256 IPUs. The rates come from the time stamps
  of training blocks in ten logs each, without evaluation and start. Updates need an additional time, independent of
  the number of micro-batches and of the packs from the host: on 256 IPUs each host feeds fewer packs than on 64. With
  free optimizer values the errors are {mlperf_no_values}. The program sends new values after each session run: four for
  each decayed weight, about 100 or 150 weights (bert_optimizer.py). At PyTorch's time for a value these take 35 to
  50 ms, and on 64 and more IPUs {mlperf_lacking} are missing. Any other cost per variable and update looks the same.
  Other programs in PopART time only their session runs, and programs in TensorFlow send only a rate. A time per
  variable reduces their errors too, so the cost may have a different cause. Programs
  before v2.0 did not merge sums of gradients: the sums follow each other, variable by variable and IPU by IPU. Version
  v2.0 merges all-reduces alone (mergeAllReduceCollectives in its bert.py). Merged sums change the rows of v1.0 and v1.1
  from {mlperf_unmerged.errors} to {mlperf_merged}.
- **ResNet-50 on several pods: {pods.errors}.** GW-Links at a tenth of their rate give {pods_slow_links}, and latencies
  of 100 times {pods_late_links}. All of MLPerf's programs share batch norm statistics between two IPUs, which ipusim
  leaves out. An all-reduce between two IPUs for each norm and pass, recomputation included, gives {pods_norms}, and on
  the fitted rows with one pod {resnet50_norms}. This time fits several pods, and is too long on one pod.
- **ResNeXt-101: {resnext101.errors}**, from two editions of a program. Partial sums of convolutions in single precision
  give {float_resnext101}, but the configuration asks for half precision. One group per convolution instead of 32 gives
  {resnext101_one_group}, and no new layouts {resnext101_nothing}. The cause is unknown.
- **U-Net: {unet.errors}.** Copies for skip connections have the largest effect: links between IPUs at half of their
  rate give {unet_slow_links}. The slow input of ResNet-50 in MLPerf v1.0 gives {unet_slow_input}. Partial sums of
  convolutions in single precision give {float_unet}, but the configuration asks for half precision. The cause is
  unknown.
- **BERT's fine-tuning: {tuning.errors}.** Graphcore's PyTorch programs and Hugging Face's Trainer set the optimizer
  after each step. For each variable, PopTorch then sends every value that the program gave to its optimizer and did
  not mark as constant (poptorch c2a8b177, python/optim.py; popart d2f20d7, willow/src/adam.cpp, getOptimizerInputs).
  Graphcore's BERT sends three: the learning rate, epsilon, and the scale of gradients (graphcore/examples 3cc8f81,
  nlp/bert/pytorch/optimization.py). The Trainer also sends both betas (huggingface/optimum-graphcore 0d110101,
  trainer.py). With free values the rows would be {tuning_no_values}. PopART's program, the first row, times its session
  runs alone (examples c0239af, nlp/bert/popart/bert.py), and has a single variable for the kernels of queries, keys and
  values, where the scenario has three. Rows four and five come from the clock of whole trainings: 1,542 updates in
  284.2 s, and 690 in 134.5 s (train_results.json). With an equal start of both trainings an update takes 176 ms, with
  an equal start of their three and two epochs 163 ms, against {tuning_fifth} simulated. In the first three rows the
  last IPU sets the pace: it recomputes three of its four layers, as PopART does with layers before the last checkpoint
  (popart d2f20d7, pipeline.cpp, setFinalFwdStageRecomputation). Without checkpoints this IPU would recompute nothing.
  The rows would then be {tuning_no_checkpoints}, but would not fit. Graphcore's tutorial, the last row, times its own
  steps; its optimizer also sends the weight decay, which is not marked as constant (graphcore/tutorials 68b1154).
- **GPT-2: {gpt2.errors}.** Optimizer state on chip gives {gpt2_on_chip}, partial sums in single precision {float_gpt2},
  and a separate head for scores of the vocabulary in eight parts {gpt2_head}. The cause is unknown.
- **Conformer: {conformer.errors}.** A micro-batch takes {conformer.micro_batch} simulated, and {conformer.by_pair}
  according to the rows with the fewest and the most micro-batches. The scenario leaves out work of the last IPU: the
  decoder's attention to the encoder, and the CTC loss. This work is not the cause: a CTC loss over all 304 frames, with
  a compute set for each frame in both directions, and a decoder on all frames give {conformer_ctc}. Partial sums in
  single precision change the first row to {float_conformer}, but the configuration asks for half precision. The cause
  is unknown.
- **ViT: {vit.errors}.** Partial sums in single precision give {float_vit}, but the program's default is half precision.
  Dropout of attention weights gives {vit_dropped}, separate products for queries, keys and values {vit_split}, and the
  additional position of a class token {vit_token}. The cause is unknown.
- **Small networks.** The network of Graphcore's Keras tutorial has {piped.errors} as a pipeline, {alone.errors} on one
  IPU, and {twins.errors} on two replicas (a single gradient sum gives {twins_merged}). Without new layouts all six
  rows have {mnist_nothing}, and without fixed times of compute sets {mnist_sets}. For the other network editions of the
  tutorial differ by a factor of two, so its figures are ranges: {small.errors}, by number of replicas, and without new
  layouts {small_nothing}.

"""

#: Causes of errors on single products, with measurements that would decide between causes.
RESIDUALS: Final = """\
## Where it is off

The experiment here sets the ceiling of the matrix unit to its peak, and changes nothing else.

- *n* = 64 on 1024 x 1024: {few}.
- *n* of at least 8192 on 1024 x 1024: {large}; at peak {large_at_peak}, but the worst error of smaller *n* grows from
  {small} to {small_at_peak}.
- *n* from 1024 to 4096 on 4096 x 4096: {stepped}; at peak {stepped_at_peak}.

The cause of the rest is unknown. Values were read off a picture, to 2 to 3 %. PopLibs' plan for one of these products,
or a profile of its compute sets and exchanges, would show more.

Errors of unseen sizes test the rates, but not the form of the model, which was chosen with knowledge of all rows. The
same holds for the chip (on a GC200 no rates within the plausible ranges explain the rows), the type of partial sums,
the operand in the matrix unit, rows that never overlap with the start of a pass, and the weight of plausible ranges.

"""


#: Causes of errors on micro-benchmarks, and conclusions.
LINKS: Final = """\
## What they say

- A superstep with a halo exchange takes 3.7 to 5.2 us, including 0.3 to 0.5 us for the bytes. The parts were profiled
  on 16 IPUs, and the fixed exchange is the rest of the rows in single precision. In half precision, half of the bytes
  took the same time to within 60 ns. The model gives the bytes their time on the links, and is up to 5 % too fast here.
- Neighbours in an M2000 move 26.5 GB/s each way in Graphcore's test, as many bytes as 2 links at 83 % of 16 GB/s. The
  test sends 4,096,000 kB: 1000 times 64 kB from each of 32 tiles of both IPUs. Nobody has published whether more tiles
  use more links (a pair has 6). ipusim uses the measured value.
- A larger pod sums gradients faster because the ends of its rails are joined. An all-reduce in a ring of R replicas
  sends 2 (R - 1) / R of the buffer over each hop. On the open rails of a POD16 a ring returns over the same links, and
  fills both directions. On the torus of a POD64 two rings run in opposite directions, with half of the buffer each:
  (15 / 16) / (2 x 3 / 4) = 0.625 of the time. 16 IPUs of a POD64, or a POD64 without the joints, take at least as long
  as a POD16.
- Small blocks and simultaneous work of both sides make the host's figures a lower limit. For one figure Graphcore's
  rule of thumb is 46 % higher.
"""


def fidelity_page(validation: Validation) -> str:
    """Return the page on fidelity: verdicts, whole trainings, and their background."""
    rows = validation.throughputs
    tables = [throughput_report.throughput_table(rows), throughput_report.throughput_error_table(rows)]
    text = (
        "# How far to trust it\n\n"
        "Judge here how far to trust a simulated time: errors against published trainings, and a list of modelled, "
        "assumed and missing parts. `python -m reports` makes the page with `ipusim validate`, from the published "
        "[throughputs](../ipusim/app/fidelity/measured/throughputs.csv).\n\n"
    )
    text += "".join(f"- {line}\n" for line in validation.verdicts())
    text += "\n![Throughputs, simulated against published](throughputs.png)\n\n"
    text += "\n".join(f"## {table.title}\n\n{table_markdown(table)}" for table in tables)
    text += "".join(f"\n{line}\n" for line in throughput_report.throughput_words(rows))
    text += f"\n## Where it is off\n\n{residuals(validation)}\n"
    for table in (validation.fitted_rates, validation.sensitivities):
        text += f"## {table.title}\n\n{table_markdown(table)}\n" if table else ""
    return text + TRUST


@sharing
def residuals(validation: Validation) -> str:
    """Describe tried explanations for trainings with large errors, each tested by a run."""
    rows = validation.throughputs

    def trainings_of(rows: Sequence[SimulatedRow]) -> list[PreparedRow]:
        return [entry.training for entry in rows]

    def errors_with(rows: Sequence[SimulatedRow], **times: Fraction) -> str:
        return _errors_with(trainings_of(rows), **times)

    def errors_with_fast_streams(rows: Sequence[SimulatedRow]) -> str:
        # Simulated cycles exclude off-chip time, so a new rate needs no new simulation.
        rates = DEFAULT_RATES.with_values(offchip_stream_ns=NOTHING)
        return _errors([entry.with_rates(rates) for entry in rows])

    # Errors of the present rates, comparable with errors of tried settings.
    rows = [
        replace(entry, unseen_items_per_s=None)
        for entry in rows
        if entry.row.use != "input" or entry.row.model == "resnet50"
    ]
    gpt2, tensorflow2 = _rows_of(rows, "gpt2", "pytorch"), _rows_of(rows, "bert_large", "tensorflow2")
    tuning = [entry for entry in rows if entry.row.model.startswith("squad")]
    base = _rows_of(rows, "bert_base", "tensorflow2")
    large = [
        entry for entry in rows if entry.row.model == "bert_large" and "data.length" not in str(entry.row.settings)
    ]
    mnist = _rows_of(rows, "mnist_cnn", "")
    twins = [entry for entry in mnist if (entry.row.count, entry.row.ipus) == (1, 2)]
    resnet50 = [entry for entry in _rows_of(rows, "resnet50", "tensorflow1") if entry.row.use == "fitted"]
    resnext101, unet = _rows_of(rows, "resnext101", "tensorflow1"), _rows_of(rows, "unet", "tensorflow2")
    by_input, pods = ([entry for entry in rows if entry.row.use == use] for use in ("input", "pods"))
    small = sorted(_rows_of(rows, "small_cnn", ""), key=lambda entry: entry.row.ipus)
    conformer, vit = _rows_of(rows, "conformer", "pytorch"), _rows_of(rows, "vit", "pytorch")
    mlperf = _rows_of(rows, "bert_large_512", "popart")
    # Simulated cycles exclude the host's time, so a new rate needs no new simulation.
    no_values = DEFAULT_RATES.with_values(optimizer_value_ns=NOTHING, pytorch_optimizer_value_ns=NOTHING)
    missing_s = [each.seconds_published - each.with_rates(no_values).seconds for each in mlperf if each.row.ipus >= 64]
    unmerged = [entry for entry in mlperf if entry.row.source.startswith("MLPerf v1")]
    return TRAININGS.format(
        conformer=Residual.of(conformer),
        float_conformer=_tried(conformer[:1], FLOAT_PARTIALS),
        conformer_ctc=_tried(conformer, *CTC),
        by_input=Residual.of(by_input),
        by_input_slow=_tried(by_input, SLOW_INPUT),
        pods=Residual.of(pods),
        pods_slow_links=errors_with(pods, gateway_link_bytes_per_s=Fraction(1, 10)),
        pods_norms=_errors(with_shared_statistics(trainings_of(pods))),
        resnet50_norms=_errors(
            with_shared_statistics(trainings_of([entry for entry in resnet50 if entry.row.ipus > 4]))
        ),
        pods_late_links=errors_with(pods, gateway_latency_ns=Fraction(100)),
        mlperf=Residual.of(mlperf),
        mlperf_unmerged=Residual.of(unmerged),
        mlperf_merged=_tried(unmerged, MERGED),
        mlperf_lacking=f"{min(missing_s) * 1e3:.0f} to {max(missing_s) * 1e3:.0f} ms",
        mlperf_no_values=_errors([entry.with_rates(no_values) for entry in mlperf]),
        tuning=Residual.of(tuning),
        tuning_no_values=_errors([entry.with_rates(no_values) for entry in tuning]),
        tuning_no_checkpoints=_tried(tuning[:3], "pipeline.recomputation_checkpoints=[]"),
        tuning_fifth=f"{tuning[4].seconds * 1e3:.0f} ms",
        small=Residual.of(small),
        small_nothing=errors_with(small, **LAID_OUT),
        piped=Residual.of([entry for entry in mnist if entry.row.count > 1]),
        alone=Residual.of([entry for entry in mnist if entry.row.ipus == 1]),
        twins=Residual.of(twins),
        twins_merged=_tried(twins, MERGED),
        mnist_sets=errors_with(mnist, compute_set_cycles=NOTHING),
        mnist_nothing=errors_with(mnist, **LAID_OUT),
        resnext101=Residual.of(resnext101),
        float_resnext101=_tried(resnext101, FLOAT_CONVOLUTIONS),
        resnext101_one_group=_tried(resnext101, *IN_ONE_GROUP),
        resnext101_nothing=errors_with(resnext101, **LAID_OUT),
        unet=Residual.of(unet),
        unet_slow_links=errors_with(unet, machine_rung_bytes_per_s=Fraction(1, 2), link_bytes_per_s=Fraction(1, 2)),
        unet_slow_input=_tried(unet, SLOW_INPUT),
        float_unet=_tried(unet, FLOAT_CONVOLUTIONS),
        gpt2=Residual.of(gpt2),
        gpt2_on_chip=_tried(gpt2, "pipeline.offload_weight_update_variables=false"),
        gpt2_head=_tried(gpt2, HEAD),
        float_gpt2=_tried(gpt2, FLOAT_PARTIALS),
        tensorflow2=Residual.of(tensorflow2),
        tensorflow2_fast_streams=errors_with_fast_streams(tensorflow2),
        base=Residual.of(base),
        base_fast_streams=errors_with_fast_streams(base),
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
        resnet50_not_laid_out=errors_with(resnet50, variable_layout_cycles=NOTHING),
        resnet50_nothing=errors_with(resnet50, **LAID_OUT),
    )


def _rows_of(rows: Sequence[SimulatedRow], model: str, framework: str) -> list[SimulatedRow]:
    return [entry for entry in rows if (entry.row.model, entry.row.framework) == (model, framework)]


def _tried(rows: Sequence[SimulatedRow], *settings: str) -> str:
    """Return the errors of rows with other settings."""
    changed_rows = [replace(entry.row, settings=(*entry.row.settings, *settings)) for entry in rows]
    return _errors(simulate_rows(prepare_rows(changed_rows)))


def _errors_with(rows: Sequence[PreparedRow], **times: Fraction) -> str:
    """Return the errors of rows with some rates multiplied by factors."""
    rates = DEFAULT_RATES.with_values(**{name: getattr(DEFAULT_RATES, name) * by for name, by in times.items()})
    return _errors(simulate_rows(rows, rates))


@dataclass(frozen=True)
class Residual:
    """Explanation of the errors of similar rows, such as a model in one framework.

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
        least, most = (by(rows, key=lambda entry: entry.row.count) for by in (min, max))
        counts = most.row.count - least.row.count
        pair = (most.seconds_published - least.seconds_published) / counts if counts else 0.0
        return cls(
            errors=_errors(rows),
            micro_batch=_milliseconds(rows[0].time.micro_batch),
            by_pair=_milliseconds(pair),
        )


def _errors(rows: Sequence[SimulatedRow]) -> str:
    return enumerated(f"{abs(round(entry.reported_error, 2)) and entry.reported_error:+.0%}" for entry in rows)


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.2f} ms"


def products_page(validation: Validation) -> str:
    """Return the page that compares priced dense products with measured ones."""
    rows = [entry.row for entry in validation.products]
    text = (
        "# Dense products, measured and modelled\n\n"
        "Check here how close simulated dense products come to measured products; the same search over splits prices "
        "every pass of a scenario. `python -m reports` makes the page with `ipusim validate`, from "
        "[measurements](../ipusim/app/fidelity/measured/products.csv) and four rates.\n\n"
        "![TFLOP/s by shape, measured and modelled](products.png)\n\n"
    )
    text += f"{' '.join(products.words(rows, validation.chip, is_fitted=validation.is_fitted))}\n\n"
    tables = (
        products.error_table(validation.products),
        products.planner_rate_table(rows, validation.chip),
        products.product_table(validation.products),
    )
    text += product_residuals(rows, validation.chip)
    return text + "\n".join(f"## {table.title}\n\n{table_markdown(table)}" for table in tables)


def product_residuals(rows: Sequence[ProductRow], chip: hardware.IpuSpec) -> str:
    """Describe tried explanations for products with large errors, each tested by a run."""
    square = [row for row in rows if row.m == row.k == 1024]
    few = [row for row in square if row.n == 64]
    large, small = ([row for row in square if (row.n >= 8192) == is_large] for is_large in (True, False))
    stepped = [row for row in rows if row.m == row.k == 4096 and 1024 <= row.n <= 4096]
    present_rates = pricing.DEFAULT_PLANNER_RATES
    peak = replace(present_rates, amp_ceiling=1.0)

    def errors(group: Sequence[ProductRow], rates: pricing.PlannerRates = present_rates) -> list[float]:
        return [products.tflops(row, chip, rates) / row.tflops - 1 for row in group]

    def between(values: Sequence[float]) -> str:
        return f"{min(values):+.1%} to {max(values):+.1%}"

    return RESIDUALS.format(
        few=between(errors(few)),
        large=between(errors(large)),
        large_at_peak=between(errors(large, peak)),
        small=f"{max(errors(small), key=abs):+.1%}",
        small_at_peak=f"{max(errors(small, peak), key=abs):+.1%}",
        stepped=between(errors(stepped)),
        stepped_at_peak=between(errors(stepped, peak)),
    )


def micro_benchmarks_page(validation: Validation) -> str:
    """Return the page that compares micro-benchmarks of IPUs and hosts with published figures."""
    text = (
        "# Micro-benchmarks, published and simulated\n\n"
        "Check here how close supersteps, transfers, collectives and host copies come to published figures. "
        "`python -m reports` makes the page with `ipusim validate`, from published "
        "[figures](../ipusim/app/fidelity/measured/micro_benchmarks.csv), and prices each row as in a run.\n\n"
    )
    text += f"{table_markdown(micro.benchmark_table(validation.benchmarks))}\n{LINKS}\n"
    return text + "".join(f"- {line}\n" for line in micro.benchmark_words(validation.benchmarks))
