//! Reading and writing MSCCL-IR.

use crate::support::ring;

use ahbm_formats::msccl_xml::{self, Dialect};
use ahbm_plan::blocks::{Action, Dep, Precopy, Slot};
use ahbm_plan::{Budget, Collective, Goal, Limit, Plan, Protocol, Space};
use proptest::prelude::*;

fn read(text: &str) -> Result<Plan, Vec<ahbm_findings::Diagnostic>> {
    msccl_xml::read(text.as_bytes(), "plan.xml", &Budget::default())
}

/// Codes of the errors, or of the warnings.
fn codes(text: &str) -> Vec<&'static str> {
    match read(text) {
        Ok(plan) => plan.warnings.iter().map(|w| w.code).collect(),
        Err(errors) => errors.iter().map(|e| e.code).collect(),
    }
}

/// Two ranks; `first` is what rank 0 has inside `<gpu>`, `second` rank 1.
fn pair(first: &str, second: &str) -> String {
    format!(
        "<algo name=\"pair\" proto=\"LL\" nchannels=\"1\" nchunksperloop=\"2\" ngpus=\"2\" coll=\"allreduce\" inplace=\"1\" \
         outofplace=\"0\" minBytes=\"0\" maxBytes=\"0\">\n<gpu id=\"0\" i_chunks=\"2\" o_chunks=\"2\" s_chunks=\"1\">\n{first}\n</gpu>\n\
         <gpu id=\"1\" i_chunks=\"2\" o_chunks=\"2\" s_chunks=\"1\">\n{second}\n</gpu>\n</algo>"
    )
}

const SENDER: &str = "<tb id=\"0\" send=\"1\" recv=\"-1\" chan=\"0\">\
    <step s=\"0\" type=\"s\" srcbuf=\"i\" srcoff=\"0\" dstbuf=\"i\" dstoff=\"0\" cnt=\"1\" depid=\"-1\" deps=\"-1\" hasdep=\"0\"/></tb>";
const RECEIVER: &str = "<tb id=\"0\" send=\"-1\" recv=\"0\" chan=\"0\">\
    <step s=\"0\" type=\"r\" srcbuf=\"i\" srcoff=\"0\" dstbuf=\"s\" dstoff=\"0\" cnt=\"1\" depid=\"-1\" deps=\"-1\" hasdep=\"1\"/></tb>";

#[test]
fn every_attribute_arrives() {
    let plan = read(&pair(SENDER, &format!("{RECEIVER}<tb id=\"1\" send=\"-1\" recv=\"-1\" chan=\"0\">\
        <step s=\"0\" type=\"re\" srcbuf=\"s\" srcoff=\"0\" dstbuf=\"o\" dstoff=\"1\" cnt=\"1\" depid=\"0\" deps=\"0\" hasdep=\"0\"/></tb>"))).unwrap();
    assert_eq!((plan.name.as_str(), plan.goal, plan.protocol), ("pair", Collective::AllReduce.into(), Protocol::Ll));
    assert_eq!((plan.chunks, plan.channels, plan.in_place, plan.out_of_place), (2, 1, true, false));
    assert_eq!((plan.min_bytes, plan.max_bytes), (Some(0), Some(0)));
    assert!(plan.warnings.is_empty(), "{:?}", plan.warnings);
    let step = &plan.ranks[1].blocks[1].steps[0];
    assert_eq!((step.action, step.wait), (Action::Reduce, Some(Dep { block: 0, step: 0 })));
    assert_eq!(step.src, Slot { space: Space::Scratch, chunk: 0 });
    assert_eq!(step.dst, Slot { space: Space::Output, chunk: 1 });
    assert!(plan.ranks[1].blocks[0].steps[0].posts);
    assert_eq!(step.line, 6);
}

#[test]
fn the_other_dialect_names_one_location() {
    let plan = read(
        "<algo name=\"x\" proto=\"Simple\" nchannels=\"1\" ngpus=\"2\">\
         <gpu id=\"0\" i_chunks=\"1\" o_chunks=\"2\" s_chunks=\"0\"><copy i_off=\"0\" o_off=\"1\"/><tb id=\"0\" send=\"1\" recv=\"-1\" chan=\"0\">\
         <op step=\"0\" type=\"s\" buf=\"i\" off=\"0\"/></tb></gpu>\
         <gpu id=\"1\" i_chunks=\"1\" o_chunks=\"2\" s_chunks=\"0\"><tb id=\"0\" send=\"-1\" recv=\"0\" chan=\"0\">\
         <op step=\"0\" type=\"r\" buf=\"o\" off=\"1\"/></tb></gpu></algo>",
    )
    .unwrap();
    assert_eq!(plan.ranks[1].blocks[0].steps[0].dst, Slot { space: Space::Output, chunk: 1 });
    assert_eq!(plan.ranks[0].before, [Precopy { input: 0, output: 1, count: 1, line: 1 }]);
    assert_eq!((plan.chunks, plan.goal), (2, Goal::Custom));
    let codes: Vec<_> = plan.warnings.iter().map(|w| w.code).collect();
    assert_eq!(codes, ["AHBM-F150", "AHBM-F160"]);
}

#[test]
fn a_plan_is_warned_of_as_the_file_that_it_becomes() {
    let nop = "<step s=\"0\" type=\"nop\" srcbuf=\"i\" srcoff=\"0\" dstbuf=\"o\" dstoff=\"0\" cnt=\"0\" depid=\"-1\" deps=\"-1\" hasdep=\"0\"/>";
    let long = format!("{SENDER}<tb id=\"1\" send=\"-1\" recv=\"-1\" chan=\"0\">{}</tb>", nop.repeat(65));
    let texts = [
        pair(&long, RECEIVER),
        pair(SENDER, RECEIVER).replace("nchannels=\"1\"", "nchannels=\"33\""),
        pair(SENDER, RECEIVER)
            .replace("cnt=\"1\"", "cnt=\"72\"")
            .replace("s_chunks=\"1\"", "s_chunks=\"72\"")
            .replace("\"2\"", "\"72\"")
            .replace("ngpus=\"72\"", "ngpus=\"2\""),
        pair(SENDER, RECEIVER).replace("i_chunks=\"2\"", "i_chunks=\"1\""),
    ];
    let told = |warnings: &[ahbm_findings::Diagnostic]| {
        warnings.iter().map(|warning| (warning.code, warning.message.clone())).collect::<Vec<_>>()
    };
    for text in &texts {
        let plan = read(text).unwrap();
        for (dialect, missing) in [
            (Dialect::Executor, false),
            (Dialect::Compiler { collective: "allreduce", sizes: true }, false),
            (Dialect::Compiler { collective: "all_reduce", sizes: true }, false),
            (Dialect::Compiler { collective: "allreduce", sizes: false }, true),
        ] {
            let warnings = msccl_xml::warnings_as(&plan, dialect);
            let again = read(&msccl_xml::write_as(&plan, dialect)).unwrap();
            assert_eq!(told(&warnings), told(&again.warnings), "{text}");
            assert_eq!(warnings.iter().any(|warning| warning.code == "AHBM-F150"), missing);
            assert!(
                !warnings.is_empty() && warnings.iter().all(|warning| warning.sites[0].origin.starts_with("plan.xml:"))
            );
        }
    }
}

#[test]
fn malformed_files_say_where() {
    let with = |step: &str| pair(&format!("<tb id=\"0\" send=\"1\" recv=\"-1\" chan=\"0\">\n{step}\n</tb>"), RECEIVER);
    let step = |rest: &str| with(&format!("<step s=\"0\" {rest}/>"));
    let sent = "type=\"s\" srcbuf=\"i\" dstbuf=\"i\" dstoff=\"0\"";
    for (text, code, line) in [
        ("<algo".to_string(), "AHBM-F110", 1),
        ("<!DOCTYPE a [<!ENTITY x \"y\">]><algo/>".into(), "AHBM-F110", 1),
        ("<other/>".into(), "AHBM-F111", 1),
        ("<algo ngpus=\"0\"/>".into(), "AHBM-F114", 1),
        ("<algo ngpus=\"5\"><gpu id=\"0\"/></algo>".into(), "AHBM-F114", 1),
        ("<algo ngpus=\"1\"><gpu id=\"7\"/></algo>".into(), "AHBM-F114", 1),
        ("<algo ngpus=\"1\" inplace=\"maybe\"><gpu id=\"0\"/></algo>".into(), "AHBM-F112", 1),
        ("<algo ngpus=\"1\" proto=\"Fast\"><gpu id=\"0\"/></algo>".into(), "AHBM-F112", 1),
        ("<algo ngpus=\"1\"><gpu i_chunks=\"1\"/></algo>".into(), "AHBM-F111", 1),
        ("<algo ngpus=\"1\">\n<cpu id=\"0\"/></algo>".into(), "AHBM-F113", 2),
        (
            "<algo ngpus=\"2\" coll=\"allgather\" nchunksperloop=\"3\"><gpu id=\"0\"/><gpu id=\"1\"/></algo>".into(),
            "AHBM-F119",
            1,
        ),
        (step(&format!("{sent} srcoff=\"2\"")), "AHBM-F117", 4),
        (step(&format!("{sent} srcoff=\"0\" cnt=\"3\"")), "AHBM-F117", 4),
        (step(&format!("{sent} srcoff=\"4294967295\" cnt=\"4294967295\"")), "AHBM-F117", 4),
        (step(&format!("{sent} srcoff=\"zero\"")), "AHBM-F112", 4),
        (step(sent), "AHBM-F111", 4),
        (step("srcbuf=\"i\" srcoff=\"0\""), "AHBM-F111", 4),
        (step(&format!("{sent} srcoff=\"0\" depid=\"3\" deps=\"0\"")), "AHBM-F115", 4),
        (step("type=\"r\" dstbuf=\"i\" dstoff=\"0\""), "AHBM-F118", 4),
        (step("type=\"ra\" srcbuf=\"i\" srcoff=\"0\" dstbuf=\"i\" dstoff=\"0\""), "AHBM-U201", 4),
        (with("<stop s=\"0\"/>"), "AHBM-F113", 4),
        (pair(&format!("{SENDER}<tb id=\"1\" send=\"1\" recv=\"-1\" chan=\"0\"/>"), RECEIVER), "AHBM-F116", 3),
        (pair(&SENDER.replace("id=\"0\"", "id=\"1\""), RECEIVER), "AHBM-F114", 3),
        (pair(&SENDER.replace("send=\"1\"", "send=\"2\""), RECEIVER), "AHBM-F118", 3),
        (pair(&SENDER.replace("send=\"1\"", "send=\"0\""), RECEIVER), "AHBM-F118", 3),
    ] {
        let errors = read(&text).expect_err(&text);
        assert_eq!(errors[0].code, code, "{text}\n{}", errors[0]);
        assert_eq!(errors[0].sites[0].origin, format!("plan.xml:{line}"), "{text}");
    }
    assert_eq!(codes("\u{feff}"), ["AHBM-F110"]);
    assert_eq!(msccl_xml::read(b"<algo \xff", "x", &Budget::default()).unwrap_err()[0].code, "AHBM-F110");
}

#[test]
fn what_a_runtime_would_reject() {
    let nop = "type=\"nop\" srcbuf=\"i\" srcoff=\"-1\" dstbuf=\"o\" dstoff=\"-1\" cnt=\"0\" hasdep=\"0\"";
    let copy = "type=\"cpy\" srcbuf=\"i\" srcoff=\"0\" dstbuf=\"s\" dstoff=\"0\" cnt=\"1\" hasdep=\"0\"";
    let second =
        |steps: &str| pair(SENDER, &format!("{RECEIVER}<tb id=\"1\" send=\"-1\" recv=\"-1\" chan=\"0\">{steps}</tb>"));
    let (wait, free) = ("depid=\"0\" deps=\"0\"", "depid=\"-1\" deps=\"-1\"");
    assert_eq!(codes(&second(&format!("<step s=\"0\" {copy} {wait}/>"))), [""; 0]);
    assert_eq!(codes(&second(&format!("<step s=\"0\" {nop} {wait}/><step s=\"1\" {copy} {free}/>"))), ["AHBM-F155"]);
    assert_eq!(codes(&second(&format!("<step s=\"0\" {nop} {wait}/><step s=\"1\" {copy} {wait}/>"))), [""; 0]);
    assert_eq!(codes(&second(&format!("<step s=\"1\" {copy} {free}/>"))), ["AHBM-F159"]);
    assert_eq!(codes(&second(&format!("<step s=\"0\" {copy} {free} colour=\"red\"/>"))), ["AHBM-F158"]);
    let silent = format!("<step s=\"0\" {copy} {wait}/>");
    assert_eq!(codes(&second(&silent).replace("hasdep=\"1\"", "hasdep=\"0\"")), ["AHBM-F156"]);
    let many: String = (0..65).map(|s| format!("<step s=\"{s}\" {copy} {free}/>")).collect();
    assert_eq!(codes(&second(&many)), ["AHBM-F151"]);
    assert_eq!(codes(&pair(SENDER, RECEIVER).replace("nchannels=\"1\"", "nchannels=\"33\"")), ["AHBM-F152"]);
    assert_eq!(codes(&pair(SENDER, RECEIVER).replace(" minBytes=\"0\"", "")), ["AHBM-F150"]);
    assert_eq!(codes(&pair(SENDER, RECEIVER).replace("i_chunks=\"2\"", "i_chunks=\"1\"")), ["AHBM-F161"]);
    let scatter =
        pair(SENDER, RECEIVER).replace("allreduce", "reduce_scatter").replace("o_chunks=\"2\"", "o_chunks=\"1\"");
    assert_eq!(codes(&scatter), ["AHBM-F162"]);
    let spelled = |coll: &str| codes(&pair(SENDER, RECEIVER).replace("\"allreduce\"", &format!("{coll:?}")));
    assert_eq!((spelled("allreduces"), spelled("custom"), spelled("")), (vec!["AHBM-F169"], vec![], vec![]));
    let ranged = |most: &str| pair(SENDER, RECEIVER).replace("minBytes=\"0\" maxBytes=\"0\"", most);
    assert_eq!(codes(&ranged("minBytes=\"2\" maxBytes=\"1\"")), ["AHBM-F165"]);
    assert_eq!(codes(&ranged("minBytes=\"2\" maxBytes=\"0\"")), [""; 0]);
    assert_eq!(codes(&pair(SENDER, RECEIVER).replace("chan=\"0\"", "chan=\"-1\"")), ["AHBM-F166"]);
    assert_eq!(codes(&pair(SENDER, RECEIVER).replace("\"LL\"", "\"ll\"")), ["AHBM-F167"]);
}

#[test]
fn attributes_that_the_executor_requires() {
    let lacking = |text: String| read(&text).unwrap().warnings.into_iter().map(|w| (w.code, w.message)).collect();
    let both: Vec<_> = lacking(pair(SENDER, RECEIVER).replace(" depid=\"-1\" deps=\"-1\"", ""));
    let told = "<step> lacks depid, deps; the executor does not load the file (and 1 more places)";
    assert_eq!(both, [("AHBM-F168", told.to_owned())]);
    for (attribute, element) in [(" chan=\"0\"", "<tb> lacks chan"), (" o_chunks=\"2\"", "<gpu> lacks o_chunks")] {
        let found: Vec<_> = lacking(pair(SENDER, RECEIVER).replace(attribute, ""));
        assert!(found[0].1.starts_with(element), "{found:?}");
    }
    assert_eq!(codes(&pair(SENDER, RECEIVER).replace(" proto=\"LL\"", "")), ["AHBM-F150"]);
}

#[test]
fn a_negative_count_is_an_error_where_it_stands() {
    let errors = read(&pair(&SENDER.replace("cnt=\"1\"", "cnt=\"-1\""), RECEIVER)).unwrap_err();
    assert_eq!((errors[0].code, &*errors[0].sites[0].origin), ("AHBM-F112", "plan.xml:3"));
    let nop = SENDER.replace("type=\"s\"", "type=\"nop\"").replace("cnt=\"1\"", "cnt=\"-1\"");
    assert!(read(&pair(&nop, RECEIVER)).is_ok(), "a nop moves nothing");
}

#[test]
fn over_budget_is_refused_before_it_is_read() {
    let text = ring::ring_xml(8);
    for (limit, value, code) in [
        (Limit::FileBytes, 100, "AHBM-B201"),
        (Limit::Steps, 100, "AHBM-B204"),
        (Limit::Ranks, 7, "AHBM-B206"),
        (Limit::Nesting, 3, "AHBM-B208"),
        (Limit::StringBytes, 3, "AHBM-B207"),
    ] {
        let errors = msccl_xml::read(text.as_bytes(), "ring.xml", &Budget::default().with(limit, value)).unwrap_err();
        assert_eq!(errors[0].code, code);
        assert!(errors[0].hint.as_deref().is_some_and(|h| h.contains(limit.name())));
    }
    let deep = "<a>".repeat(100);
    assert_eq!(codes(&deep), ["AHBM-B208"]);
}

/// What a plan means, without where it was written.
fn meaning(mut plan: Plan) -> Plan {
    plan.warnings.clear();
    plan.file = "".into();
    for rank in &mut plan.ranks {
        rank.before.iter_mut().chain(&mut rank.after).for_each(|c| c.line = 0);
        for block in &mut rank.blocks {
            block.line = 0;
            block.steps.iter_mut().for_each(|s| s.line = 0);
        }
    }
    plan
}

#[test]
fn written_files_load_and_mean_the_same() {
    let bare = pair(SENDER, RECEIVER)
        .replace(" outofplace=\"0\" minBytes=\"0\" maxBytes=\"0\"", "")
        .replace("pair", "a &amp; &quot;b&lt;");
    for text in [
        ring::ring_xml(5),
        pair(&format!("<copy i_off=\"0\" o_off=\"1\"/>{SENDER}<copy i_off=\"1\" o_off=\"0\"/>"), RECEIVER),
        bare,
    ] {
        let plan = read(&text).unwrap();
        let again = read(&msccl_xml::write(&plan)).unwrap();
        assert!(again.warnings.iter().all(|w| w.code == "AHBM-F160"), "{:?}", again.warnings);
        let limits = Plan { min_bytes: plan.min_bytes.or(Some(0)), max_bytes: plan.max_bytes.or(Some(0)), ..plan };
        assert_eq!(meaning(again), meaning(limits));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Whatever is done to a file, reading it ends and never panics; what can be read can be lowered or is
    /// refused.
    #[test]
    fn mangled_files_end_in_an_answer(edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0u8..4), 1..8)) {
        let mut bytes = ring::ring_xml(3).into_bytes();
        for (at, byte, how) in edits {
            let at = at.index(bytes.len());
            match how {
                0 => bytes[at] = byte,
                1 => bytes[at] = b"0123456789-"[byte as usize % 11],
                2 => { bytes.remove(at); }
                _ => { let tail = bytes.split_off(at); bytes.extend_from_slice(&tail[tail.len() / 2..]); bytes.extend(tail); }
            }
        }
        let budget = Budget::default().with(Limit::Ops, 100_000);
        if let Ok(plan) = msccl_xml::read(&bytes, "x", &budget) {
            let _ = plan.lower_for_check(1, &budget);
            let _ = msccl_xml::write(&plan);
        }
    }
}
