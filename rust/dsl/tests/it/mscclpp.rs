//! Programs of the MSCCL++ DSL, without Python.

use ahbm_dsl::mscclpp::{Barriers, Chunk, Meet, Recorder, Settings, Transfer, Workers, text};
use ahbm_dsl::{Faith, Raised};
use ahbm_formats::mscclpp::schema::{Kind, Protocol};
use ahbm_formats::mscclpp::{ReadOptions, read, resolve};
use ahbm_plan::Space;
use ahbm_plan::execution::Places;
use ahbm_program::{Locus, Origin, Origins};

const NEVER: Meet = Meet { before: false, after: false };

fn recorder() -> Recorder {
    let settings = Settings {
        name: "exchange".to_owned(),
        collective: "allgather".to_owned(),
        protocol: Protocol::Simple,
        in_place: true,
        instances: 1,
        fuse: true,
        auto_sync: true,
        reuse_resources: false,
        threads: 1024,
        double_scratch: false,
        alignment: 16,
        min_bytes: 0,
        max_bytes: u64::MAX,
    };
    Recorder::new(settings, &[[1, 2]; 2], Faith::Meant, Barriers::default())
}

fn chunk(rank: u32, index: u32) -> Chunk {
    Chunk { rank, space: Space::Output, index, size: 1, object: 0 }
}

/// Both ranks put their part at the other one. Places count the statements of rank 0, then those of rank 1.
fn exchange() -> Recorder {
    let mut program = recorder();
    for rank in 0..2u32 {
        let (peer, line) = (1 - rank, 5 * rank);
        let channel = program.channel(Kind::Memory, i64::from(peer), i64::from(rank)).unwrap();
        program.signal(channel, true, 0, NEVER, line).unwrap();
        program.wait(channel, true, 0, Meet { before: false, after: true }, line + 1).unwrap();
        let piece = [chunk(peer, rank), chunk(rank, rank)];
        program.put(channel, Transfer::Put, piece, Workers::Block(0), line + 2).unwrap();
        program.signal(channel, false, 0, Meet { before: true, after: false }, line + 3).unwrap();
        program.wait(channel, false, 0, NEVER, line + 4).unwrap();
    }
    program
}

fn statements(count: u32) -> Origins {
    let mut origins = Origins::default();
    for line in 1..=count {
        origins.intern(Origin { file: "program.py".into(), locus: Locus::Line(line) });
    }
    origins
}

#[test]
fn a_program_is_the_plan_that_its_text_says_with_other_places() {
    let (program, origins) = (exchange(), statements(10));
    let lowered = program.lower(&origins).unwrap();
    let whole = Origin { file: "program.py".into(), locus: Locus::Line(99) };
    let options = ReadOptions::default();
    let mut resolved = resolve(&lowered.document, whole, origins.iter().cloned().collect(), &options).unwrap();
    let mut written = read(text(&lowered.document).as_bytes(), "program.py", &options).unwrap();
    assert_eq!(resolved.ranks[1].blocks[0][3].place, 7);
    for plan in [&mut resolved, &mut written] {
        plan.places = Places::Positions;
        plan.ranks.iter_mut().flat_map(|rank| &mut rank.blocks).flatten().for_each(|op| op.place = 0);
    }
    assert_eq!(resolved, written);
    assert!(lowered.notes.is_empty());
}

#[test]
fn lowering_changes_nothing() {
    let (program, origins) = (exchange(), statements(10));
    let once = text(&program.lower(&origins).unwrap().document);
    assert_eq!(once, text(&program.lower(&origins).unwrap().document));
}

#[test]
fn a_signal_without_a_wait_is_an_error_with_both_sides() {
    let (mut program, origins) = (recorder(), statements(1));
    let channel = program.channel(Kind::Port, 1, 0).unwrap();
    program.signal(channel, false, 0, NEVER, 0).unwrap();
    let fault = program.lower(&origins).err().unwrap();
    assert_eq!((fault.raised, fault.findings[0].code), (Raised::Runtime, "AHBM-A104"));
    let sites: Vec<&str> = fault.findings[0].sites.iter().map(|site| &*site.origin).collect();
    assert_eq!(sites, ["program.py:1", ""]);
}
