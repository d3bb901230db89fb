//! Every error code of Rust and Python, with its meaning in one line: the registry.
//!
//! The first letter is the family. It decides the class of the exception and the exit code
//! (`python/ahbm/errors.py`). `docs/errors.md` is generated from this table by `scripts/errors.py`. A code has one
//! meaning and keeps it; a number that was given up is not used again. To add one: a row here and one in `codes/cases.rs`,
//! then `python scripts/errors.py`. Tests refuse a code that is raised and not listed, and one that is listed and not
//! raised.

mod cases;

pub use cases::CASES;

/// A family on which decisions rest: a limit was reached.
pub const BUDGET: char = 'B';
/// A family on which decisions rest: it does not exist here.
pub const UNSUPPORTED: char = 'U';

/// Two accesses that nothing orders.
pub const RACE: &str = "AHBM-V403";
/// Another order of the agents gives another result.
pub const ORDER_DEPENDENT: &str = "AHBM-V404";
/// Whether accesses are ordered was not analysed.
pub const ORDER_UNDECIDED: &str = "AHBM-V406";
/// Signals that nobody waits for.
pub const UNAWAITED: &str = "AHBM-V410";
/// Contributions and the run with numbers disagree.
pub const CHECKS_DISAGREE: &str = "AHBM-V408";

/// Code and meaning, by code.
#[rustfmt::skip]
pub const CODES: &[(&str, &str)] = &[
    ("AHBM-A101", "MSCCL++ DSL: a statement outside a program, or a program inside another"),
    ("AHBM-A102", "MSCCL++ DSL: a statement whose ranks, chunks, thread blocks or numbers do not fit it or each other"),
    ("AHBM-A103", "MSCCL++ DSL: an argument of the wrong type, or with a value that means nothing"),
    ("AHBM-A104", "MSCCL++ DSL: signals from a rank to another and waits for them differ in number; names the statements"),
    ("AHBM-A105", "MSCCL++ DSL: a slice that is no chunks of its buffer"),
    ("AHBM-A106", "MSCCL++ DSL: a program for a version of the language that is not served; names the version"),
    ("AHBM-A120", "note: an older name of the MSCCL++ DSL; gives the newer one"),
    ("AHBM-A121", "note: MSCCL++'s own compiler makes another plan of a statement; says how (`--quirks` does the same)"),
    ("AHBM-A122", "warning: the instances of a program share elements, because its statements cut the same memory differently"),
    ("AHBM-A201", "MSCCLang: a statement outside a program, or a program inside another"),
    ("AHBM-A202", "MSCCLang: a call with arguments of the wrong type, or by the interface before msccl-tools 2.3"),
    ("AHBM-A203", "MSCCLang: a rank, buffer or slot that does not exist"),
    ("AHBM-A204", "MSCCLang: a slot is used before anything is written to it"),
    ("AHBM-A205", "MSCCLang: a transfer between ranks without a link"),
    ("AHBM-A206", "MSCCLang: references that do not fit: sizes differ, places overlap or are apart, parts are not equal"),
    ("AHBM-A207", "MSCCLang: thread blocks or channels that cannot do what the statements ask for"),
    ("AHBM-A208", "MSCCLang: a thread block receives in another order than is sent to it"),
    ("AHBM-A209", "MSCCLang: `Check()` finds chunks that are not where the collective promises"),
    ("AHBM-A210", "MSCCLang: a program whose protocol, policy, instances, topology or collective does not fit, or that is too large"),
    ("AHBM-A211", "MSCCLang: a name of the language that is not served"),
    ("AHBM-A220", "note: operations of different counts share slots; instances alternate slot by slot, where the language's own compiler lets them collide"),
    ("AHBM-A221", "note: what the language's own compiler fuses into one step with another result stays two steps, or keeps its sum"),
    ("AHBM-A222", "note: a reduction that the language's own compiler leaves out"),
    ("AHBM-A223", "note: a received chunk is reduced into the slot that the program names, where the language's own compiler reads another"),
    ("AHBM-A224", "note: thread blocks are manual and statements name none, so that one thread block does all of them"),
    ("AHBM-A225", "note: a program uses fewer chunks than its collective has; the language's own compiler divides the buffers by those that are used"),
    ("AHBM-A301", "an exception in a script that lowers programs"),
    ("AHBM-A302", "a script that lowers programs ended with an exit status"),
    ("AHBM-A303", "a script that lowers no program"),

    ("AHBM-B101", "a kernel recorded more operations than `op_budget`"),
    ("AHBM-B102", "a tile with too many elements"),
    ("AHBM-B103", "a kernel with too many views"),
    ("AHBM-B120", "a simulation took more events than `event_budget`"),
    ("AHBM-B121", "the reasons of a run's times are more pieces than the budget: explain a smaller run, or use `cut_through`"),
    ("AHBM-B122", "a run too long for a timeline file: fewer bytes or ranks"),
    ("AHBM-B123", "numerics: orders of addition that change from element to element of large arrays"),
    ("AHBM-B124", "an element whose history is longer than the budget of `ahbm inspect`"),
    ("AHBM-B125", "the routes between a run's ranks cross more links than a simulation keeps track of"),
    ("AHBM-B126", "the ranks of a run make more `tl` calls together than a program holds"),
    ("AHBM-B201", "a file over the limit `file_bytes`"),
    ("AHBM-B202", "a file that inflates to more than `inflated_bytes`"),
    ("AHBM-B203", "a file that inflates by more than `inflation_ratio`"),
    ("AHBM-B204", "a file with more than `steps` nodes or steps"),
    ("AHBM-B205", "a file with more than `deps` dependencies"),
    ("AHBM-B206", "a file for more than `ranks` ranks"),
    ("AHBM-B207", "a string of more than `string_bytes` bytes"),
    ("AHBM-B208", "elements nested deeper than `nesting`"),
    ("AHBM-B209", "a plan that lowers to more than `ops` operations"),
    ("AHBM-B210", "a check that takes more than `check_steps` steps"),
    ("AHBM-B211", "a check of buffers with more than `cells` elements"),
    ("AHBM-B212", "an XML element with more than `attributes` attributes, or a document with more namespaces"),
    ("AHBM-B213", "ASTRA-sim's numbers: too many links, queues, streams or messages at a time"),
    ("AHBM-B301", "the data do not fit this computer's memory"),
    ("AHBM-B401", "synthesis: more chunks or transfers than the schedule can keep track of"),
    ("AHBM-B402", "synthesis: too many NPUs at one switch"),

    ("AHBM-C101", "`ccl.yaml` cannot be read"),
    ("AHBM-C102", "YAML that this project does not read: syntax, no mapping, a key twice, a key that is no text, too long, nested too deeply"),
    ("AHBM-C103", "a value in `ccl.yaml` of the wrong type, or a key that does not go with the keys beside it"),
    ("AHBM-C104", "a key that must be there is missing"),
    ("AHBM-C105", "unknown collective"),
    ("AHBM-C106", "no algorithm is configured for this collective or size"),
    ("AHBM-C107", "an override's key belongs neither to the topology nor to `ccl.yaml`"),
    ("AHBM-C108", "unknown key in `ccl.yaml`"),
    ("AHBM-C109", "`collectives` in `ccl.yaml` names an algorithm that no entry defines"),
    ("AHBM-C110", "there is no such algorithm module"),
    ("AHBM-C111", "the module fails when it is imported"),
    ("AHBM-C112", "the module has no `kernel` or no `kernel_args`"),
    ("AHBM-C113", "a symbol of the module has the wrong type"),
    ("AHBM-C115", "the algorithm implements another collective"),
    ("AHBM-C116", "the algorithm does not know this SIP network"),
    ("AHBM-C117", "a plan for another number of ranks"),
    ("AHBM-C120", "a rank, root, source or destination outside the group, or given twice"),
    ("AHBM-C121", "`world_size` is more than the machine holds"),
    ("AHBM-C122", "`buffer_kind` is no slot tier of the machine"),
    ("AHBM-C123", "unknown reduction operator"),
    ("AHBM-C124", "unknown kind of test data"),
    ("AHBM-C125", "a size that is no whole number of elements, or more than any machine holds"),
    ("AHBM-C126", "an emulator was passed together with what it is made of"),
    ("AHBM-C127", "the torch backend: an option or environment variable that is unknown, has an unknown value, or asks for another torch"),
    ("AHBM-C128", "`bytes_per_rank` and `bytes_per_pe` are both given"),
    ("AHBM-C129", "an argument of a Python function that has the wrong type or is out of its range"),
    ("AHBM-C130", "`ahbm new`: the name is no Python identifier"),
    ("AHBM-C131", "`ahbm new`: the file or the entry exists already"),
    ("AHBM-C132", "`ahbm new`: `algorithms` in `ccl.yaml` cannot be extended line by line"),
    ("AHBM-C140", "`ahbm bench`: the sizes do not grow from the first to the last"),
    ("AHBM-C141", "a file cannot be written"),
    ("AHBM-C142", "`--set` without KEY=VALUE"),
    ("AHBM-C143", "`ahbm bench`: unknown dtype"),
    ("AHBM-C144", "`ahbm run`, `ahbm.open`: the target is no collective, no plan, no job and no script"),
    ("AHBM-C145", "`ahbm list`: unknown kind"),
    ("AHBM-C146", "`ahbm run`, `ahbm.open`: a term that does not go with the target: not taken, without such a value, or missing (a size)"),
    ("AHBM-C147", "text that is no number of bytes"),
    ("AHBM-C148", "a trace of a run that had nothing to run"),
    ("AHBM-C149", "a timeline is written to a `.pftrace` or `.json` file"),
    ("AHBM-C150", "synthesis: not exactly one positive size, or a number out of its range"),
    ("AHBM-C151", "a ladder has no candidate that runs at a size; the message says why of each"),
    ("AHBM-C152", "`--members` that is no list of NPUs"),
    ("AHBM-C153", "`--groups` without a JSON object of rank lists"),
    ("AHBM-C157", "a manifest of a transformer: numbers that are missing, out of range, do not divide each other, or make too large a job"),
    ("AHBM-C158", "warning: a rule of ccl.yaml for groups or nodes that no call of the job meets; names the rule and its line"),
    ("AHBM-C160", "a file or a text that holds no reports"),
    ("AHBM-C161", "a page or chart that cannot be written, or of no known format"),
    ("AHBM-C162", "no list of numbers of ranks"),
    ("AHBM-C163", "`ahbm.open`: the algorithm of a report has changed since its run, or was a function that its pickle leaves behind"),
    ("AHBM-C170", "an unknown check, or options of `ahbm check` that do not go together"),
    ("AHBM-C175", "a language's own package is imported already, where this project's is to be served under its name"),
    ("AHBM-C176", "a script lowers no program of this name"),
    ("AHBM-C177", "no values of an argument to try, or too many combinations of them"),
    ("AHBM-C178", "plans that are to be compared compute different things"),
    ("AHBM-C180", "a selector chose what is no algorithm of its collective"),
    ("AHBM-C185", "the space of a sweep: an unknown key, or a value that is none; names file and line"),
    ("AHBM-C186", "a folder that holds no sweep, or a file in it that cannot be read"),
    ("AHBM-C187", "a column that the rows of a sweep do not have, or that is not what is asked of it"),
    ("AHBM-C190", "a file of ASTRA-sim with a key that is missing or has a value that ASTRA-sim does not know; names file and key"),
    ("AHBM-C191", "warning: a key or option of ASTRA-sim that changes no number"),
    ("AHBM-C201", "the program under construction is finished"),
    ("AHBM-C202", "unknown slot tier"),
    ("AHBM-C203", "unknown memory space"),
    ("AHBM-C204", "a group, body or buffer that does not exist"),
    ("AHBM-C205", "a collective that cannot be synthesized"),
    ("AHBM-C210", "an unknown protocol"),
    ("AHBM-C211", "an unknown limit"),

    ("AHBM-D101", "deadlock; names who waits for whom, in which operation, and the last progress"),
    ("AHBM-D102", "a job in which ranks wait for collectives that never start"),
    ("AHBM-D103", "ASTRA-sim's numbers: a rank that never ends there; names rank, node, peer or group"),
    ("AHBM-D190", "the data pass stands still: the timeline belongs to another program"),
    ("AHBM-D191", "a timeline, memory or later call that belongs to another program"),
    ("AHBM-D201", "`ahbm check`: deadlock; names the thread blocks that wait for each other, and where"),

    ("AHBM-F101", "a file that cannot be read"),
    ("AHBM-F102", "a file that cannot be written; the one before it is left as it was"),
    ("AHBM-F110", "MSCCL-IR: not an XML document, or not text"),
    ("AHBM-F111", "MSCCL-IR: an element or attribute is missing"),
    ("AHBM-F112", "MSCCL-IR: an attribute has an unusable value"),
    ("AHBM-F113", "MSCCL-IR: an unknown element"),
    ("AHBM-F114", "MSCCL-IR: ranks or thread blocks are not numbered 0, 1, 2, …"),
    ("AHBM-F115", "plan: a dependency on a step that does not exist"),
    ("AHBM-F116", "plan: two thread blocks of a rank at one end of a queue"),
    ("AHBM-F117", "plan: a step outside its buffer"),
    ("AHBM-F118", "plan: a message to or from nobody"),
    ("AHBM-F119", "plan: the chunks do not split into one block per rank"),
    ("AHBM-F127", "a size that does not split into a plan's chunks or among its instances"),
    ("AHBM-F128", "a plan's message that nobody receives, or that nobody sends"),
    ("AHBM-F130", "a Chakra trace whose nodes do not follow the order of the steps they state"),
    ("AHBM-F131", "a Chakra trace with bytes that are no execution trace, with the offset"),
    ("AHBM-F132", "a trace with a broken gzip stream"),
    ("AHBM-F133", "a Chakra trace with two nodes of one id"),
    ("AHBM-F134", "a Chakra trace with a dependency on a node that does not exist"),
    ("AHBM-F135", "a Chakra trace with nodes that wait for each other"),
    ("AHBM-F136", "a Chakra node with an attribute that is missing or out of range"),
    ("AHBM-F137", "a Chakra send without a receive, or the reverse"),
    ("AHBM-F138", "a Chakra send and receive of different sizes"),
    ("AHBM-F139", "files of a trace that are missing, ambiguous, or cannot be read or written"),
    ("AHBM-F141", "execution plan: not a JSON document of this kind"),
    ("AHBM-F142", "execution plan: ranks are not numbered by position"),
    ("AHBM-F143", "execution plan: a value that means nothing"),
    ("AHBM-F144", "execution plan: a reference to a rank, channel, buffer or semaphore that is not declared"),
    ("AHBM-F145", "execution plan: operands that do not fit each other or their operation"),
    ("AHBM-F146", "execution plan: chunks outside a buffer"),
    ("AHBM-F147", "execution plan: a size or dtype that the plan cannot be run with"),
    ("AHBM-F149", "a recorded job: a collective that a rank of its group lacks, or that the ranks disagree on"),
    ("AHBM-F150", "warning: an attribute without which the executor does not load the file"),
    ("AHBM-F151", "warning: a thread block of more than 64 steps"),
    ("AHBM-F152", "warning: more than 32 channels"),
    ("AHBM-F153", "warning: more than 32 peers in one direction of a channel"),
    ("AHBM-F154", "warning: more than 4096 document nodes for one rank"),
    ("AHBM-F155", "warning: nop steps that wait for a step without a dependency of its own"),
    ("AHBM-F156", "warning: a dependency on a step that does not report"),
    ("AHBM-F157", "warning: a step of 72 chunks or more"),
    ("AHBM-F158", "warning: an unknown attribute"),
    ("AHBM-F159", "warning: steps that are not numbered by position"),
    ("AHBM-F160", "warning: `<copy>`, which runtimes ignore"),
    ("AHBM-F161", "warning: `i_chunks` or `o_chunks` disagree with `nchunksperloop`"),
    ("AHBM-F162", "warning: a spelling of the collective that the executor does not know"),
    ("AHBM-F163", "warning: a Chakra trace that numbers its chunks but is not followed through memory; the message says why"),
    ("AHBM-F164", "warning: dependencies that lenient reading of a Chakra trace left out"),
    ("AHBM-F170", "bytes between the ranks of a job that are no message, or not the one that was due"),
    ("AHBM-F171", "warning: the executor refuses the plan, or divides by zero"),
    ("AHBM-F172", "warning: more entries than a fixed array of the executor has"),
    ("AHBM-F173", "warning: the executor does something else than the plan says; `--quirks` does the same"),
    ("AHBM-F174", "warning: a signal on a channel without a counterpart"),
    ("AHBM-F180", "a schedule of TACOS, TE-CCL, SCCL or TACCL that is not of its kind"),
    ("AHBM-F181", "a schedule in which a rank sends what it does not have at that point"),
    ("AHBM-F182", "a trace of a version of the schema that is not known (a warning)"),
    ("AHBM-F183", "a trace of PyTorch with bytes that are no such trace, with the offset"),
    ("AHBM-F184", "a trace of PyTorch that does not state what a communication is, its size or its ranks"),
    ("AHBM-F185", "ranks without a trace of PyTorch, or with several"),
    ("AHBM-F186", "warning: what a trace of PyTorch leaves open, and how it was taken"),
    ("AHBM-F187", "a step that a trace of PyTorch does not have"),

    ("AHBM-I101", "interrupted"),

    ("AHBM-K110", "`kernel_args` raised, or did not return a tuple"),
    ("AHBM-K111", "the kernel's parameters do not match what it gets"),
    ("AHBM-K201", "`tl` was used after its kernel had returned"),
    ("AHBM-K202", "a kernel asked a handle for its data"),
    ("AHBM-K203", "a handle of another kernel call"),
    ("AHBM-K204", "an address outside the tensor"),
    ("AHBM-K205", "an access with another dtype than the tensor's"),
    ("AHBM-K206", "a shape that is missing, is no shape, or has too many elements"),
    ("AHBM-K207", "unknown dtype"),
    ("AHBM-K208", "unknown direction, or a message to oneself"),
    ("AHBM-K209", "an operand that a `tl` call cannot take: its kind, shape, dtype or value"),
    ("AHBM-K210", "the kernel raised an exception (`__cause__`)"),
    ("AHBM-K211", "the kernel recursed too deeply"),
    ("AHBM-K212", "the kernel does not take these arguments"),
    ("AHBM-K213", "the kernel is a generator or a coroutine, or returned something"),
    ("AHBM-K214", "a wrong `op`, `mode`, `axis` or `dst` of a `tl` call"),
    ("AHBM-K215", "a posted receive was waited for twice"),
    ("AHBM-K216", "the kernel does something else when it is called again with equal arguments"),

    ("AHBM-L100", "how many findings of each code were left out"),
    ("AHBM-L101", "nobody is in this direction"),
    ("AHBM-L102", "the PE in this direction runs no kernel"),
    ("AHBM-L103", "an access outside its buffer"),
    ("AHBM-L104", "a queue has more sends than receives, or fewer"),
    ("AHBM-L105", "a message larger than its slot"),
    ("AHBM-L106", "two kernels of one launch at one place"),
    ("AHBM-L107", "a send and its receive differ in bytes or dtype"),
    ("AHBM-L108", "buffers and slots exceed a memory"),
    ("AHBM-L109", "a value is read before it is defined"),
    ("AHBM-L110", "malformed program (a defect of the source that wrote it)"),
    ("AHBM-L111", "a queue without slots"),
    ("AHBM-L112", "a queue in a tier that does not exist"),
    ("AHBM-L113", "a thread block of a plan sends or receives where nobody is on the other side"),

    ("AHBM-R101", "a measurement is slower than in the baseline"),
    ("AHBM-R102", "a measurement gives a wrong result"),
    ("AHBM-R103", "a measurement of the baseline was not made"),

    ("AHBM-T001", "text that is no YAML"),
    ("AHBM-T002", "a file that is too big, nested too deeply or inflates"),
    ("AHBM-T003", "unknown key"),
    ("AHBM-T004", "a value of the wrong kind"),
    ("AHBM-T005", "a value out of range"),
    ("AHBM-T006", "unknown name of a network or model"),
    ("AHBM-T007", "the extents do not make the number of SIPs"),
    ("AHBM-T008", "a hypercube needs a power of two"),
    ("AHBM-T009", "the machine is too big"),
    ("AHBM-T010", "a link of a custom network is incomplete or leads nowhere"),
    ("AHBM-T011", "an override's path cannot be applied"),
    ("AHBM-T012", "a custom network has no way between two SIPs"),
    ("AHBM-T013", "PEs and HBM slices do not match"),
    ("AHBM-T014", "the shape cannot hold its SIPs, or a direction does not lead back"),
    ("AHBM-T015", "a key that this network does not have"),
    ("AHBM-T016", "a place that is not on the machine"),
    ("AHBM-T017", "a fault of a link or PE that does not exist, or that is none"),
    ("AHBM-T018", "dead links leave no way between two places"),
    ("AHBM-T019", "a reduction or a multicast inside a network that has no switch which reduces"),
    ("AHBM-T101", "unknown topology name"),
    ("AHBM-T102", "the file cannot be read"),
    ("AHBM-T103", "overrides for a finished machine"),
    ("AHBM-T201", "a buffer or kernel at a place that is not on the machine"),
    ("AHBM-T202", "a coordinate outside its group"),
    ("AHBM-T203", "a group's extents do not make its number of SIPs"),
    ("AHBM-T204", "unknown network of a group"),

    ("AHBM-U102", "`backpressure: poll` is not modelled"),
    ("AHBM-U110", "the algorithm does not support this operator, dtype or root; names the keyword of `kernel_args` to add"),
    ("AHBM-U111", "this collective or group does not work on device tensors"),
    ("AHBM-U112", "a plan is rooted at rank 0 only"),
    ("AHBM-U113", "a plan run on data, or as an algorithm, whose result is not known: custom collectives, and send_recv, where every rank sends"),
    ("AHBM-U115", "a reduction of bits on floating-point numbers"),
    ("AHBM-U120", "this `DPPolicy`"),
    ("AHBM-U121", "a tensor on some of the cubes"),
    ("AHBM-U130", "a dtype no kernel computes with"),
    ("AHBM-U140", "numerics of what does not round, or of too many contributions"),
    ("AHBM-U145", "a page, a table, a sample or an executor of a sweep needs a package that is not installed"),
    ("AHBM-U146", "a kernel function or a loaded machine in a sweep that other processes run, or that a file is to describe"),
    ("AHBM-U150", "a torch tensor that is not dense memory of this host"),
    ("AHBM-U151", "a reduction operator that a torch dtype does not have"),
    ("AHBM-U152", "an operation that one rank alone cannot know the result of"),
    ("AHBM-U153", "a torch tensor without data, among ranks that are to move it"),
    ("AHBM-U154", "a process group of a kind that a recorder cannot observe"),
    ("AHBM-U180", "a part of MSCCL++ that needs a GPU, MPI or its own library; the message names it"),
    ("AHBM-U201", "a step type of a plan"),
    ("AHBM-U203", "a reduction operator that plans do not have, or an average of what is no reduction"),
    ("AHBM-U204", "a plan with more ranks than the machine has SIPs"),
    ("AHBM-U211", "an operation that no executor of execution plans runs"),
    ("AHBM-U212", "instances, protocol or operator that an execution plan decides itself"),
    ("AHBM-U231", "a Chakra trace with a node that cannot be run, or a job where an algorithm is asked for"),
    ("AHBM-U232", "a Chakra trace run without the size it needs, or with one it cannot take"),
    ("AHBM-U233", "a Chakra trace run on data, or converted into a plan: it names no buffers"),
    ("AHBM-U234", "a recorded job that only names a process group, not its ranks"),
    ("AHBM-U235", "ASTRA-sim's numbers: something that ASTRA-sim stops at, or a model of it that is not here; names it"),
    ("AHBM-U290", "not decided: a result depends on an operation that a check cannot follow, or a barrier has too many ranks"),
    ("AHBM-U291", "a file of a format that cannot be read"),
    ("AHBM-U292", "a conversion into a format that cannot express the meaning; the message says what"),
    ("AHBM-U293", "a schedule that no plan can state; the message says what"),
    ("AHBM-U294", "a kernel that no plan can express; the message names the operation"),
    ("AHBM-U295", "a schedule of something that no plan says"),
    ("AHBM-U401", "synthesis or a bound: a switch with faulty links"),
    ("AHBM-U402", "synthesis: some NPU does not reach another"),
    ("AHBM-U403", "synthesis: a link of unlimited bandwidth"),
    ("AHBM-U404", "synthesis: a link that leads nowhere else"),
    ("AHBM-U405", "synthesis: trees need a link back for every link"),
    ("AHBM-U406", "synthesis: no such method, or not for this collective on this network"),
    ("AHBM-U407", "synthesis: the bytes cannot be cut into whole elements as asked"),
    ("AHBM-U408", "synthesis: the root or a member of the group does not exist"),
    ("AHBM-U409", "synthesis: the schedule is for another machine"),

    ("AHBM-V101", "number, shape or dtype of the buffers does not fit the collective"),
    ("AHBM-V110", "a tensor that cannot be cut this way"),
    ("AHBM-V120", "a timeline or memory of another program"),
    ("AHBM-V121", "an access outside a buffer"),
    ("AHBM-V122", "an array that is not contiguous, numeric and (for results) writable"),
    ("AHBM-V123", "reasons asked of a timeline that was recorded without them"),
    ("AHBM-V124", "times of operations asked of a timeline that did not record them"),
    ("AHBM-V125", "a job of unknown steps or launches"),
    ("AHBM-V301", "wrong result; says which contributions are missing or doubled"),
    ("AHBM-V302", "a message is received before it was sent"),
    ("AHBM-V303", "an operand with another dtype or size than its operation"),
    ("AHBM-V304", "a message arrives at a receive of another size or dtype"),
    ("AHBM-V305", "operands that do not broadcast"),
    ("AHBM-V306", "a value is read before it is defined"),
    ("AHBM-V310", "integer division by zero"),
    ("AHBM-V311", "an operation this dtype does not have"),
    ("AHBM-V320", "a result whose order of additions is asked for is no sum of every contribution once"),
    ("AHBM-V401", "`ahbm check`: wrong result; says which contributions are missing, doubled or foreign"),
    ("AHBM-V402", "warning: memory is read that nothing was written to"),
    (RACE, "two accesses to an element that nothing orders, one of them a write"),
    (ORDER_DEPENDENT, "the result depends on the order of the thread blocks"),
    ("AHBM-V405", "warning: messages that nobody receives"),
    (ORDER_UNDECIDED, "not decided: whether accesses are ordered was not analysed, too many thread blocks share memory"),
    ("AHBM-V407", "a message of another size than its receive"),
    (CHECKS_DISAGREE, "`ahbm check`: contributions and the run with numbers disagree; a defect of this project"),
    ("AHBM-V409", "`ahbm check`: no run with numbers was possible (a warning)"),
    (UNAWAITED, "warning: signals that nobody waits for, fewer waits than signals or none at all"),
    ("AHBM-V411", "calls that follow each other at once compute something else than calls with a pause between"),
    ("AHBM-V412", "ranks whose results should be equal end with different bits"),
    ("AHBM-V413", "`ahbm explore`: other times give another result"),
    ("AHBM-V414", "a rank's operand or result is touched before its call starts or after it has ended"),
    ("AHBM-V415", "a rank leaves a barrier that another rank may not have entered"),

    ("AHBM-X101", "unknown backend"),
    ("AHBM-X102", "the process group is not initialised"),
    ("AHBM-X103", "the process group is initialised already"),
    ("AHBM-X104", "the number of ranks does not fit the machine"),
    ("AHBM-X105", "work is waited for in another thread"),
    ("AHBM-X106", "this rank is no member of the group"),
    ("AHBM-X107", "the worker does not take its arguments"),
    ("AHBM-X108", "`ahbm.torch.spawn` inside of another"),
    ("AHBM-X110", "the ranks disagree on collective, operator, root, shape, dtype or algorithm"),
    ("AHBM-X120", "a rank failed; says which, `__cause__` says why"),
    ("AHBM-X121", "no rank can go on; says who waits for whom"),
    ("AHBM-X122", "time-out"),
    ("AHBM-X123", "a rank returned while others wait for it"),
    ("AHBM-X124", "a rank aborted its process group"),
    ("AHBM-X125", "the emulator in rank 0's process failed with an error of Python"),
    ("AHBM-X126", "rank 0, whose process holds the emulator, is gone"),
    ("AHBM-X130", "a tensor that cannot be used in this call: its memory, size or dtype"),
    ("AHBM-X131", "a wrong argument of a call of `ahbm.distributed` or of the torch backend"),
    ("AHBM-X132", "a recorder that is younger than the process groups it is to observe, or that saw none"),
    ("AHBM-X133", "a recorded receive from anyone whose sender never became known"),
    ("AHBM-X140", "a case of a sweep whose process died each time that it ran; a row of the sweep"),
    ("AHBM-X141", "the processes of a sweep do not start, or their executor broke and nobody made another"),

    ("AHBM-Z001", "internal error: a defect of AHBM, please report it"),
];

/// The meaning of a code; nothing for one that is not registered.
pub fn meaning(code: &str) -> Option<&'static str> {
    CODES.binary_search_by_key(&code, |&(code, _)| code).ok().map(|at| CODES[at].1)
}

/// The letter of a code: `U` of `AHBM-U203`.
pub fn family(code: &str) -> char {
    code.strip_prefix("AHBM-").and_then(|rest| rest.chars().next()).unwrap_or('Z')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_sorted_and_unique_and_well_formed() {
        assert!(CODES.windows(2).all(|pair| pair[0].0 < pair[1].0));
        for (code, meaning) in CODES {
            let number = code.strip_prefix("AHBM-").unwrap();
            assert!(number.len() == 4 && family(code).is_ascii_uppercase() && number[1..].parse::<u16>().is_ok());
            assert!(!meaning.is_empty() && !meaning.contains(['\n', '|']), "{code}");
        }
    }

    #[test]
    fn every_code_has_an_example_and_a_remedy() {
        assert!(
            CODES.iter().map(|row| row.0).eq(CASES.iter().map(|row| row.0)),
            "a row of codes/cases.rs for each code"
        );
        for (code, example, remedy) in CASES {
            for part in [example, remedy] {
                assert!(!part.is_empty() && !part.contains(['\n', '|']) && !part.ends_with('.'), "{code}");
                assert_eq!(part.matches('`').count() % 2, 0, "{code}");
            }
        }
    }

    #[test]
    fn a_code_that_nobody_registered_has_no_meaning() {
        assert_eq!(meaning(RACE), Some("two accesses to an element that nothing orders, one of them a write"));
        assert_eq!((meaning("AHBM-V999"), meaning(""), family("nonsense")), (None, None, 'Z'));
    }
}
