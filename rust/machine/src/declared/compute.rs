//! `compute`: what the kernels of a training job take by their class and dimensions, and what their host takes.
//!
//! A law has its numbers here: a section of its own, by class of kernels, whose keys are plain numbers with defaults. A key
//! that is added to the table below is read, described in the schema, hashed, and in [`Compute`].

use super::{Count, Reader, Real, Told, Value, section};
use ahbm_wire::yaml::{Tree, Value as Yaml};
use serde_json::{Value as Json, json};

/// Declares `compute`: per section its keys with their defaults. Makes of each the keys as they are read, and the numbers
/// that the emulator gets.
macro_rules! compute {
    ($($(#[doc = $about:literal])+ $section:ident: $keys:ident => $name:ident {
        $($(#[doc = $doc:literal])+ $field:ident = $default:expr,)+
    })+) => {
        section! {
            /// What the kernels of a training job take by their class and dimensions, and what their host takes to issue
            /// them. Where absent, a kernel takes what `pe.roofline` says, and its host nothing. `units`, `clock_mhz` and
            /// `l2_mib` are those of the data sheet; all other keys have the values that were fitted to an H200.
            ComputeKeys {
                /// Where the numbers are from.
                source: Option<Told> = None,
                /// How they were fitted, as `ahbm calibrate` writes it. It changes no time.
                fit: Option<Unread> = None,
                /// Units that each run blocks of a kernel: SMs, CUs.
                units: Option<Count<1, 65_536>> = None,
                /// Their clock under load, in MHz.
                clock_mhz: Option<Real> = None,
                /// The cache that all units share, in units of 2^20 bytes.
                l2_mib: Option<Real> = None,
                /// Power of the accelerator, in watts; where it does not suffice for the clock, units that multiply fall to
                /// what it suffices for. By default it suffices.
                watts: Option<Real> = None,
                $($(#[doc = $about])+ $section: $keys = $keys::default(),)+
            }
        }

        /// What the kernels of a training job take by their class and dimensions, and what their host takes.
        #[derive(Debug, Clone, Copy, PartialEq)]
        pub struct Compute {
            /// Units that each run blocks of a kernel: SMs, CUs.
            pub units: f64,
            /// Their clock under load, in MHz.
            pub clock_mhz: f64,
            /// The cache that all units share, in units of 2^20 bytes.
            pub l2_mib: f64,
            /// Power of the accelerator, in watts; infinite where it suffices for the clock.
            pub watts: f64,
            $($(#[doc = $about])+ pub $section: $name,)+
        }

        impl ComputeKeys {
            /// The numbers; the data sheet has been checked to be there.
            pub(crate) fn compute(&self) -> Compute {
                Compute {
                    units: self.units.map_or(0.0, |units| f64::from(units.0)),
                    clock_mhz: self.clock_mhz.map_or(0.0, |mhz| mhz.0),
                    l2_mib: self.l2_mib.map_or(0.0, |mib| mib.0),
                    watts: self.watts.map_or(f64::INFINITY, |watts| watts.0),
                    $($section: $name { $($field: self.$section.$field.0,)+ },)+
                }
            }
        }

        impl Compute {
            /// Every number by its path below `compute`.
            pub fn values(&self) -> Vec<(&'static str, f64)> {
                vec![
                    ("units", self.units),
                    ("clock_mhz", self.clock_mhz),
                    ("l2_mib", self.l2_mib),
                    $($((concat!(stringify!($section), ".", stringify!($field)), self.$section.$field),)+)+
                ]
            }
        }

        $(
            section! {
                $(#[doc = $about])+
                $keys { $($(#[doc = $doc])+ $field: Real = Real($default),)+ }
            }

            $(#[doc = $about])+
            #[derive(Debug, Clone, Copy, PartialEq)]
            pub struct $name { $($(#[doc = $doc])+ pub $field: f64,)+ }
        )+
    };
}

compute! {
    /// What every kernel takes beside its work.
    kernel: KernelKeys => KernelLaw {
        /// From its start to its first work and from its last to its end, in ns.
        start_ns = 1260.0,
    }
    /// The memory and the L2, for kernels that move bytes.
    memory: MemoryKeys => MemoryLaw {
        /// Share of the bandwidth of the data sheet that streams reach.
        share = 0.897,
        /// What the L2 gives a unit in a cycle, in bytes; no less than the bandwidth of the memory.
        l2_cycle_bytes = 20.753,
        /// Share of the L2 from which on half of the bytes go to the memory.
        l2_fill = 0.963,
    }
    /// Functions of each element: cycles of a unit for an element, where those last longer than its bytes.
    element: ElementKeys => ElementLaw {
        /// Of dense operands of one type, in loads of 16 bytes.
        pointwise_cycles = 0.162,
        /// Besides, for each error function or exponential chain (`dims[1]` of the kernel: GELU 1, its gradient 2).
        erf_cycles = 0.155,
        /// Of operands of several types, element by element.
        cast_cycles = 0.712,
        /// What such a kernel takes besides to start, in ns.
        cast_ns = 969.0,
        /// Of operands that are not dense in one order.
        strided_cycles = 0.728,
        /// Of operands whose quickest dimensions differ, as in a transposing copy (`dims[1]` of the kernel is 1).
        crossed_cycles = 1.52,
        /// With an operand that is repeated, where as much is read as written.
        broadcast_cycles = 0.711,
        /// Of random numbers, as of dropout.
        random_cycles = 0.546,
        /// What a kernel that only writes takes to start and end, in ns.
        fill_ns = 834.0,
    }
    /// One launch over chunks of many tensors, as of optimizers.
    foreach: ForeachKeys => ForeachLaw {
        /// Share of the bandwidth of the data sheet.
        share = 0.786,
        /// Cycles of a unit for each read or write of an element.
        cycles = 0.0927,
        /// Cycles besides that a block takes for each of the up to 65,536 elements of its chunk.
        chunk_cycles = 0.124,
    }
    /// Sums, means, maxima.
    reduce: ReduceKeys => ReduceLaw {
        /// To start and end, in ns.
        start_ns = 3190.0,
        /// Down columns: share of the bandwidth of the data sheet.
        share = 0.777,
        /// Cycles of a unit for an element.
        cycles = 0.147,
        /// Cycles of a unit for a result.
        result_cycles = 0.466,
        /// What a thread takes to load and add four elements, one after the other, in ns.
        step_ns = 82.5,
        /// What blocks that share a sum take besides, in ns.
        shared_ns = 5530.0,
        /// What a thread takes to add the sum of a block to the last, in ns.
        part_ns = 168.0,
    }
    /// Layer norm, RMS norm and the like: a block for each row.
    norm: NormKeys => NormLaw {
        /// Cycles of a unit for a row.
        row_cycles = 124.0,
        /// Cycles of a unit for an element.
        cycles = 0.902,
        /// Cycles of a unit for an element of the gradient of the input.
        backward_cycles = 0.119,
        /// Gradient of the weights: what the block of 32 columns takes for a row, in ns.
        weights_ns = 4.45,
    }
    /// Batch norm: cycles of a unit for an element.
    batch_norm: BatchNormKeys => BatchNormLaw {
        /// With channels last: to start and end, in ns.
        start_ns = 2500.0,
        /// With channels last: of the statistics.
        cycles = 0.786,
        /// With channels last: of the elements.
        element_cycles = 0.383,
        /// With channels last: of the sums of the gradient.
        backward_cycles = 0.498,
        /// With channels last: of the elements of the gradient.
        backward_element_cycles = 0.493,
        /// With channels first, a block for each channel.
        first_cycles = 0.817,
        /// With channels first, of the gradient.
        first_backward_cycles = 1.78,
        /// With channels first: cycles of a unit for a channel.
        block_cycles = 2380.0,
    }
    /// Softmax and its logarithm: a warp or a block for each row.
    softmax: SoftmaxKeys => SoftmaxLaw {
        /// To start and end, in ns.
        start_ns = 1280.0,
        /// Share of the bandwidth of the data sheet for rows of more than 1,024, which are read three times forward, two
        /// times of them from the L2 where that holds the rows that are worked on.
        long_share = 0.84,
        /// Cycles of a unit for a row.
        row_cycles = 15.2,
        /// Cycles of a unit for an element.
        cycles = 0.325,
        /// Cycles of a unit for an element of the gradient.
        backward_cycles = 0.247,
    }
    /// Rows by their numbers: gathers, scatters, tables of embeddings, sorts.
    table: TableKeys => TableLaw {
        /// Cycles of a unit for a row that is added.
        row_cycles = 25.9,
        /// Cycles of a unit for an element that is added where others may add.
        scatter_cycles = 1.82,
        /// Gradient of a table, up to 3,072 indices: what a block takes for an index, in ns.
        index_ns = 26.0,
        /// Gradient of a table, more indices: cycles of a unit for an element of their rows.
        cycles = 2.9,
        /// A pass of a sort of all elements: to start and end, in ns.
        sort_ns = 7650.0,
        /// Sorts of many rows: cycles of a unit for 32 elements.
        sort_row_cycles = 416.0,
        /// Running sums: to start and end, in ns.
        scan_ns = 256.0,
    }
    /// Pooling.
    pool: PoolKeys => PoolLaw {
        /// Cycles of a unit for an element of a window; finding the window counts as nine.
        cycles = 0.248,
        /// Cycles of a unit for an element of the result whose gradient is added.
        backward_cycles = 11.7,
    }
    /// Losses of classes: one block for all rows.
    loss: LossKeys => LossLaw {
        /// What a thread takes for each of its rows, in ns.
        row_ns = 844.0,
        /// What the gradient takes, as a share of that.
        backward_share = 0.625,
    }
    /// Products of matrices on the tensor units: blocks make tiles of the result.
    product: ProductKeys => ProductLaw {
        /// To start and end, in ns.
        start_ns = 2530.0,
        /// Share of the peak that a tile of 128 x 128 reaches.
        share = 0.766,
        /// The same in TF32.
        tf32_share = 0.684,
        /// Share of the rate that is left in TF32 where the first operand is transposed.
        tf32_turned_share = 0.705,
        /// What a unit takes for each GHz of its clock while it multiplies, in watts.
        watts_per_ghz = 2.1,
        /// Which part of the time of a tile follows its circumference, which is what its operands take, rather than its
        /// area.
        narrow = 0.26,
        /// What a tile takes besides its inner loop, in ns.
        tile_ns = 1030.0,
        /// Which part of a last wave of tiles that does not fill the units is lost.
        wave = 0.00229,
        /// What dividing the inner dimension takes besides, in ns.
        split_ns = 3850.0,
        /// Share of the bandwidth of the data sheet.
        memory_share = 0.765,
        /// Share of the rate that is left where rows are multiples of 4 bytes alone; twice that of 8, half of 2.
        unaligned = 0.3,
    }
    /// Products in f32 without TF32, on the vector units.
    vector: VectorKeys => VectorLaw {
        /// Share of the peak that a tile of 128 x 128 reaches, at a clock that lasts.
        share = 0.93,
        /// The clock that lasts under such work, for want of power; a unit whose clock is higher falls to it.
        sustained_mhz = 1450.0,
        /// What a unit takes for each GHz of its clock while it multiplies, in watts; that of a T4, an L4 and an A100
        /// whose power is short.
        watts_per_ghz = 2.1,
        /// Which part of the time of a tile of 128 x 128 a smaller one takes, however small.
        narrow = 0.1,
        /// What a tile takes besides its inner loop, in ns.
        tile_ns = 20.0,
        /// Which part of a last wave of tiles that does not fill the units is lost.
        wave = 0.35,
        /// What dividing the inner dimension takes besides, in ns.
        split_ns = 3000.0,
    }
    /// Convolutions as products; those of one tap with channels last are plain products.
    convolution: ConvolutionKeys => ConvolutionLaw {
        /// To start and end, in ns.
        start_ns = 5800.0,
        /// Forward: share of the rate of a plain product.
        share = 0.826,
        /// Gradient of the input: share of the rate of a plain product.
        input_share = 0.647,
        /// Gradient of the input with a stride: share of that.
        strided_share = 0.872,
        /// Gradient of the weight: share of the rate of a plain product.
        weight_share = 1.01,
        /// The same in TF32.
        tf32_weight_share = 0.43,
        /// Forward in f32 without TF32: share of the peak, at the clock that lasts.
        vector_share = 0.65,
        /// Gradient of the input in f32 without TF32: the same.
        vector_input_share = 0.604,
        /// Gradient of the weight in f32 without TF32: the same.
        vector_weight_share = 0.329,
        /// How much quicker that is for 3 x 3 taps, by the algorithm of Winograd.
        winograd = 4.54,
        /// Forward in f32 without TF32, with 3 x 3 taps, by the algorithm of Winograd where that is quicker: share of the
        /// peak that its products reach, at the clock that lasts.
        winograd_share = 0.95,
        /// What that takes besides its products and the bytes of its transforms, in ns; that of an A100, a V100 and a T4.
        winograd_ns = 240000.0,
        /// In f32 without TF32: share of the rate of a unit that a block reaches which has the unit alone.
        lone = 0.3,
        /// With fewer than 8 channels: cycles of a unit for an element of the larger side; 160 products take as much
        /// again.
        few_cycles = 1.55,
        /// What the gradient of their weight takes, as a share of that.
        few_weight_share = 0.6,
        /// One channel for each group: cycles of a unit for a product.
        depthwise_cycles = 0.0521,
        /// The same of gradients.
        depthwise_backward_cycles = 0.0841,
    }
    /// Fused attention: blocks of 128 queries.
    attention: AttentionKeys => AttentionLaw {
        /// To start and end, in ns.
        start_ns = 6630.0,
        /// Share of the peak of its products.
        share = 0.616,
        /// Cycles of a unit for the exponential of a score.
        score_cycles = 0.091,
        /// What a block takes besides, in ns.
        tile_ns = 1740.0,
        /// Gradient: share of the peak of its products.
        backward_share = 0.845,
        /// Gradient: cycles of a unit for a score.
        backward_score_cycles = 0.459,
        /// FlashAttention 2: share of the rate of cuDNN (its successor is 1.5 to 2 times as fast: J. Shah et al., arXiv 2407.08608, abstract).
        flash_share = 0.65,
        /// The memory-efficient kernel: share of the rate of cuDNN; an estimate that nothing was measured for.
        efficient_share = 0.4,
        /// Cycles of a unit for the random number of a score, with dropout (`dims[8]` of the kernel is 1).
        random_cycles = 0.206,
    }
    /// What the host takes to issue what the device does, through PyTorch's eager mode. The defaults were fitted to steps on
    /// an H200 beside a Xeon.
    host: HostKeys => HostLaw {
        /// How many times as long this host takes as that of which the other times are.
        factor = 1.0,
        /// An operation of the device, through the dispatcher and with the memory of its results, in ns.
        operation_ns = 6500.0,
        /// A kernel, from the code of its operation to the driver, in ns.
        launch_ns = 9300.0,
        /// An operation that starts no kernel, such as a view, in ns.
        view_ns = 2500.0,
        /// What lies before an operation that Python asks for: modules, Python itself, autograd's part in forward; in ns.
        python_ns = 10000.0,
        /// A node of autograd in backward, beside its operations, in ns.
        node_ns = 8000.0,
        /// A call of backward, which wakes autograd's thread and the caller again, in ns.
        backward_ns = 120000.0,
        /// A step of an optimizer, in ns.
        optimizer_ns = 80000.0,
        /// A parameter in a step of an optimizer, in ns.
        parameter_ns = 1200.0,
        /// A tensor of a list that an operation is given, in ns.
        tensor_ns = 220.0,
        /// An operation on the host's own tensors, in ns.
        own_ns = 6600.0,
        /// To wait for the device, beside the wait itself, in ns.
        synchronize_ns = 10000.0,
        /// The choice of a kernel for a product, in ns.
        product_ns = 8000.0,
        /// The plan of a convolution or of an attention, for a result or for a gradient, in ns.
        plan_ns = 32000.0,
        /// A kernel that was generated, for the code in Python that calls it, in ns.
        generated_ns = 18000.0,
        /// A normalization, beside an operation of one result, in ns.
        norm_ns = 11500.0,
        /// A call of a collective, in ns.
        collective_ns = 45000.0,
        /// The rate at which it copies pageable memory to where the device reads it, in GB/s.
        staging_gbs = 12.0,
    }
}

/// `compute` with all that it needs.
#[derive(Debug, Clone)]
pub(crate) struct Computing(pub(crate) ComputeKeys);

impl Value for Computing {
    fn read(node: &Tree, reader: &mut Reader<'_>) -> Option<Self> {
        let found = ComputeKeys::read(node, reader)?;
        let positive = |given: Option<Real>| given.is_some_and(|number| number.0 > 0.0);
        let lacking: Vec<&str> = [
            ("units", found.units.is_some()),
            ("clock_mhz", positive(found.clock_mhz)),
            ("l2_mib", positive(found.l2_mib)),
        ]
        .into_iter()
        .filter_map(|(key, there)| (!there).then_some(key))
        .collect();
        if !lacking.is_empty() && reader.clean() {
            let hint = "the data sheet of the accelerator says them";
            let message = format!("{} must be there and positive", lacking.join(", "));
            reader.report(node.at, "AHBM-T005", message, Some(hint.to_owned()));
        }
        Some(Self(found))
    }

    fn schema() -> Json {
        let mut schema = ComputeKeys::schema();
        schema["required"] = json!(["units", "clock_mhz", "l2_mib"]);
        schema
    }

    fn canonical(&self, path: &str, out: &mut String) {
        self.0.canonical(path, out);
    }
}

/// What is kept as it is, for others to read: it changes no time.
#[derive(Debug, Clone)]
pub(crate) struct Unread(pub(crate) Json);

impl Value for Unread {
    fn read(node: &Tree, reader: &mut Reader<'_>) -> Option<Self> {
        reader.entries(node)?;
        Some(Self(json_of(node)))
    }

    fn schema() -> Json {
        json!({"type": ["object", "null"]})
    }

    // The machine is the same, however its numbers were found.
    fn canonical(&self, _: &str, _: &mut String) {}
}

fn json_of(node: &Tree) -> Json {
    match &node.value {
        Yaml::Null => Json::Null,
        Yaml::Bool(flag) => json!(flag),
        Yaml::Number(number) => json!(number),
        Yaml::Text(text) => json!(text),
        Yaml::List(items) => items.iter().map(json_of).collect(),
        Yaml::Map(entries) => Json::Object(entries.iter().map(|(key, node)| (key.clone(), json_of(node))).collect()),
    }
}
