//! Conversions: nothing is lost, and what would be is refused by name.

use crate::support::msccl;
use crate::support::ring::ring_xml;
use ahbm_check::{Outcome, PlanCheck, as_blocks, check_plan};
use ahbm_findings::Diagnostic;
use ahbm_formats::chakra::{PlanOptions, ReadOptions, Trace, parse};
use ahbm_formats::convert::render;
use ahbm_formats::{Document, Reading, msccl_xml};
use ahbm_plan::{BY_PROTOCOL, Budget, Collective, Goal, Plan};
use ahbm_wire::chakra::{Arm, Attribute, Metadata, Node, NodeKind, Value};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const OPTIONS: PlanOptions = PlanOptions { bytes: None, link_order: false };

fn plan(xml: &str) -> Plan {
    msccl_xml::read(xml.as_bytes(), "plan.xml", &Budget::default()).unwrap()
}

/// A folder of its own that goes away with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("ahbm-convert-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn convert(from: &Path, to: &Path) -> Result<Vec<PathBuf>, Vec<Diagnostic>> {
    let check = PlanCheck::default();
    let reading = Reading::default();
    ahbm_formats::convert::convert(from, to, &reading, check.slots, &OPTIONS, |it| as_blocks(it, &check))
}

#[test]
fn xml_to_xml_is_the_same_program() {
    let folder = Folder::new("xml");
    let from = folder.file("ring.xml", &ring_xml(4));
    let to = folder.0.join("again.xml");
    assert_eq!(convert(&from, &to).unwrap(), std::slice::from_ref(&to));
    let again = plan(&std::fs::read_to_string(to).unwrap());
    assert_eq!(hash(&again), hash(&plan(&ring_xml(4))));
}

#[test]
fn what_cannot_be_expressed_is_refused_and_nothing_is_written() {
    let folder = Folder::new("refused");
    let code = |plan: &Plan, to: &str| {
        render(plan, Path::new(to), BY_PROTOCOL, &Budget::default(), &OPTIONS).map_err(|findings| findings[0].code)
    };
    let rooted = Plan { goal: Goal::new(Collective::Reduce, 2), ..plan(&ring_xml(4)) };
    assert_eq!(code(&rooted, "a.xml"), Err("AHBM-U292"));
    assert_eq!(code(&rooted, "a.txt"), Err("AHBM-U291"));
    let from = folder.file("ring.xml", &ring_xml(4));
    let to = folder.file("kept.xml", "kept");
    assert_eq!(convert(&folder.0.join("none.xml"), &to).unwrap_err()[0].code, "AHBM-F101");
    assert_eq!(convert(&from, &folder.0.join("no/where.xml")).unwrap_err()[0].code, "AHBM-F102");
    assert_eq!(std::fs::read_to_string(to).unwrap(), "kept");
}

/// Every kind of step, waits, reports, an idle thread block, copies outside, a step of no chunks, scratch.
const EVERYTHING: &str = r#"<algo name="all &amp; everything" proto="LL" nchannels="3" nchunksperloop="4" ngpus="2"
 coll="allreduce" inplace="0" outofplace="1" minBytes="16" maxBytes="1024">
<gpu id="0" i_chunks="4" o_chunks="4" s_chunks="2">
<copy i_off="0" o_off="0" cnt="2"/><copy i_off="2" o_off="2" cnt="2"/>
<tb id="0" send="1" recv="1" chan="0">
<step s="0" type="s" srcbuf="i" srcoff="0" dstbuf="s" dstoff="0" cnt="2" depid="-1" deps="-1" hasdep="0"/>
<step s="1" type="rcs" srcbuf="i" srcoff="0" dstbuf="s" dstoff="0" cnt="1" depid="1" deps="0" hasdep="1"/>
<step s="2" type="rrc" srcbuf="i" srcoff="1" dstbuf="o" dstoff="1" cnt="1" depid="-1" deps="-1" hasdep="0"/>
<step s="3" type="rrs" srcbuf="i" srcoff="2" dstbuf="o" dstoff="2" cnt="1" depid="-1" deps="-1" hasdep="0"/>
<step s="4" type="rrcs" srcbuf="i" srcoff="3" dstbuf="o" dstoff="3" cnt="1" depid="-1" deps="-1" hasdep="1"/>
<step s="5" type="r" srcbuf="i" srcoff="0" dstbuf="s" dstoff="1" cnt="1" depid="-1" deps="-1" hasdep="0"/>
</tb>
<tb id="1" send="-1" recv="-1" chan="0">
<step s="0" type="cpy" srcbuf="i" srcoff="0" dstbuf="o" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="1"/>
<step s="1" type="re" srcbuf="s" srcoff="0" dstbuf="o" dstoff="0" cnt="1" depid="0" deps="1" hasdep="0"/>
<step s="2" type="nop" srcbuf="i" srcoff="-1" dstbuf="i" dstoff="-1" cnt="0" depid="0" deps="3" hasdep="0"/>
<step s="3" type="cpy" srcbuf="i" srcoff="0" dstbuf="o" dstoff="1" cnt="0" depid="0" deps="4" hasdep="1"/>
</tb>
<tb id="2" send="1" recv="-1" chan="2"/>
<copy i_off="1" o_off="3" cnt="1"/>
</gpu>
<gpu id="1" i_chunks="4" o_chunks="4" s_chunks="0"><tb id="0" send="0" recv="0" chan="0"/></gpu>
</algo>"#;

fn hash(plan: &Plan) -> u64 {
    plan.lower_for_check(2, &Budget::default()).unwrap().program.hash()
}

/// From bytes, as a file would be.
fn reread(trace: &Trace) -> Trace {
    of_bytes(&trace.to_bytes())
}

fn of_bytes(bytes: &[Vec<u8>]) -> Trace {
    let names: Vec<String> = (0..bytes.len()).map(|rank| format!("t.{rank}.et")).collect();
    let files: Vec<_> = names.iter().map(String::as_str).zip(bytes.iter().map(Vec::as_slice)).collect();
    parse("t", &files, &ReadOptions::default()).unwrap()
}

fn there_and_back(plan: &Plan, options: &PlanOptions) -> Plan {
    let trace = Trace::from_plan(&plan.name, plan, options).unwrap();
    reread(&trace).to_plan(&Budget::default()).unwrap()
}

/// What the executor is told is the same to the letter, and so is the program; nothing else is left of a plan.
fn assert_survives(plan: &Plan) {
    for link_order in [false, true] {
        let options = PlanOptions { bytes: None, link_order };
        if link_order && Trace::from_plan(&plan.name, plan, &options).is_err() {
            continue;
        }
        let again = there_and_back(plan, &options);
        assert_eq!(msccl_xml::write(&again), msccl_xml::write(plan));
        assert_eq!(hash(&again), hash(plan));
    }
    let first = Trace::from_plan(&plan.name, plan, &OPTIONS).unwrap();
    let second = Trace::from_plan(&plan.name, &reread(&first).to_plan(&Budget::default()).unwrap(), &OPTIONS).unwrap();
    assert_eq!(first.to_bytes(), second.to_bytes());
}

#[test]
fn a_plan_survives_as_a_trace() {
    for ranks in [2, 3, 8] {
        assert_survives(&plan(&ring_xml(ranks)));
    }
    assert_survives(&plan(EVERYTHING));
    let rooted = Plan { goal: Goal::new(Collective::Broadcast, 1), min_bytes: None, ..plan(EVERYTHING) };
    assert_eq!(there_and_back(&rooted, &OPTIONS).goal, rooted.goal);
    assert_eq!(there_and_back(&rooted, &OPTIONS).min_bytes, None);
}

#[test]
fn files_of_a_trace_are_read_by_their_prefix() {
    let folder = Folder::new("et");
    let xml = folder.file("ring.xml", &ring_xml(4));
    let to = folder.0.join("traced.et");
    let written = convert(&xml, &to).unwrap();
    assert_eq!(written, [0, 1, 2, 3].map(|rank| folder.0.join(format!("traced.{rank}.et"))));
    let document = Document::read(&to, &Reading::default()).unwrap();
    let verdict = check_plan(&document.algorithm, &PlanCheck::default());
    assert_eq!((verdict.outcome, verdict.min_slots), (Outcome::Correct, Some(2)));
    assert_eq!(
        (document.algorithm.goal(), document.algorithm.ranks(), document.algorithm.in_place()),
        (Collective::AllReduce.into(), 4, true)
    );
    let back = folder.0.join("back.xml");
    convert(&written[2], &back).unwrap();
    let text = |path: &Path| msccl_xml::write(&plan(&std::fs::read_to_string(path).unwrap()));
    assert_eq!(text(&back), text(&xml));
    // Two ranks over four would leave a trace of half each.
    let pair = folder.file("pair.xml", &ring_xml(2));
    assert_eq!(convert(&pair, &to).unwrap_err()[0].code, "AHBM-F139");
}

#[test]
fn a_trace_is_for_the_sizes_of_the_plan_that_it_was_written_from() {
    let folder = Folder::new("meant");
    let bound = r#"minBytes="16" maxBytes="1024""#;
    let xml = folder.file("ring.xml", &ring_xml(2).replace(r#"minBytes="0" maxBytes="0""#, bound));
    let to = folder.0.join("ring.et");
    convert(&xml, &to).unwrap();
    let sizes = |path: &Path| Document::read(path, &Reading::default()).unwrap().algorithm.sizes();
    assert_eq!([sizes(&xml), sizes(&to)], [(16, Some(1024)); 2]);
}

#[test]
fn a_deadlock_names_the_nodes() {
    let trace = Trace::from_plan("ring", &plan(&ring_xml(4)), &OPTIONS).unwrap();
    let plan = reread(&trace).to_plan(&Budget::default()).unwrap();
    let verdict = msccl::verdict(&plan, 1);
    assert_eq!(verdict.outcome, Outcome::Deadlock);
    assert!(verdict.findings[0].sites.iter().any(|s| s.origin.starts_with("t.0.et node ")), "{}", verdict.findings[0]);
}

#[test]
fn what_a_graph_cannot_say_is_refused() {
    let code = |xml: &str| Trace::from_plan("t", &plan(xml), &OPTIONS).map_err(|findings| findings[0].code);
    // Nothing of thread block 0 reports any more.
    let silent = EVERYTHING.replace("hasdep=\"1\"", "hasdep=\"0\"");
    assert_eq!(code(&silent), Err("AHBM-U292"));
    // Thread block 0 waits for 1 at its second step, 1 waits for 0 at its first.
    let circle = EVERYTHING.replace(
        "dstbuf=\"o\" dstoff=\"0\" cnt=\"1\" depid=\"-1\" deps=\"-1\"",
        "dstbuf=\"o\" dstoff=\"0\" cnt=\"1\" depid=\"0\" deps=\"1\"",
    );
    assert_ne!(circle, EVERYTHING);
    assert_eq!(code(&circle), Err("AHBM-U292"));
    let uneven = PlanOptions { bytes: Some(1001), link_order: false };
    let error = Trace::from_plan("t", &plan(&ring_xml(4)), &uneven).unwrap_err();
    assert_eq!(error[0].code, "AHBM-F127");
}

/// What was changed so that nodes and steps disagree is found; what changes the steps changes the verdict.
#[test]
fn a_trace_that_was_tampered_with() {
    let original = Trace::from_plan("ring", &plan(&ring_xml(4)), &OPTIONS).unwrap();
    let outcome = |change: &dyn Fn(&mut Vec<Node>)| {
        let mut nodes = original.graphs[1].nodes.clone();
        change(&mut nodes);
        let mut bytes = original.to_bytes();
        let changed = Trace::from_nodes("ring", &original.graphs[1].metadata, vec![nodes]).unwrap();
        bytes[1] = changed.to_bytes().remove(0);
        let trace = of_bytes(&bytes);
        trace
            .to_plan(&Budget::default())
            .map(|plan| msccl::verdict(&plan, 2).outcome)
            .map_err(|findings| findings[0].code)
    };
    let set = |name: &'static str, n: i64| {
        move |nodes: &mut Vec<Node>| {
            let attribute = nodes[4].attributes.iter_mut().find(|a| &*a.name == name).expect(name);
            attribute.value = Value::Integer(Arm::Int64, n.into());
        }
    };
    assert_eq!(outcome(&|_| ()), Ok(Outcome::Correct));
    assert_eq!(outcome(&set("srcoff", 1)), Ok(Outcome::Wrong));
    assert_eq!(outcome(&set("srcoff", 4)), Err("AHBM-F117"));
    assert_eq!(outcome(&set("comm_src", 2)), Err("AHBM-F136"));
    assert_eq!(outcome(&set("comm_size", 8)), Err("AHBM-F136"));
    assert_eq!(outcome(&set("local_time_step", 9)), Err("AHBM-F136"));
    assert_eq!(outcome(&|nodes| nodes[4].ctrl_deps.clear()), Err("AHBM-F130"));
    assert_eq!(outcome(&|nodes| nodes[4].data_deps = vec![0]), Err("AHBM-F130"));
    assert_eq!(outcome(&|nodes| nodes[4].kind = NodeKind::Comp), Err("AHBM-F130"));
    assert_eq!(outcome(&|nodes| drop(nodes.pop())), Ok(Outcome::Wrong));
    // Numbers in another arm, ids and durations are free.
    assert_eq!(outcome(&|nodes| nodes[4].duration_micros = 7), Ok(Outcome::Correct));
}

#[test]
fn a_trace_of_sizes_is_written_as_it_is() {
    let folder = Folder::new("sizes");
    for (rank, kind) in [(0, "COMM_SEND_NODE"), (1, "COMM_RECV_NODE")] {
        let peers = r#""comm_src": 0, "comm_dst": 1, "comm_tag": 0, "comm_size": 8, "id": 4"#;
        folder.file(&format!("a.{rank}.json"), &format!(r#"{{"nodes": [{{{peers}, "node_type": "{kind}"}}]}}"#));
    }
    let turn = |from: &str, to: &str| convert(&folder.0.join(from), &folder.0.join(to));
    let (first, second) = (turn("a.0.json", "b.et").unwrap(), turn("b.et", "c.et").unwrap());
    assert_eq!((first.len(), second.len()), (2, 2));
    for (first, second) in first.iter().zip(&second) {
        assert_eq!(std::fs::read(first).unwrap(), std::fs::read(second).unwrap());
    }
}

#[test]
fn sixty_four_ranks_take_less_than_four_megabytes() {
    let trace = Trace::from_plan("ring", &plan(&ring_xml(64)), &OPTIONS).unwrap();
    let bytes: usize = trace.to_bytes().iter().map(Vec::len).sum();
    assert!(bytes < 4_000_000, "{bytes}");
}

/// The dialect of the public converter: no buffers, reductions apart, a gap where a step only waits.
fn symbolic(ranks: u32, shift: u32) -> Trace {
    let of = |rank: u32| {
        let mut nodes: Vec<Node> = Vec::new();
        for step in 0..4 * (ranks - 1) {
            let (round, sends) = (step / 2, step.is_multiple_of(2));
            let chunk = (rank + 3 * ranks - round - u32::from(!sends)) % ranks;
            let id = nodes.len() as u64;
            let kind = if sends { NodeKind::Send } else { NodeKind::Recv };
            let mut node = Node::new(id, "", kind);
            node.data_deps = id.checked_sub(1).into_iter().collect();
            let peer = if sends { ("comm_dst", (rank + 1) % ranks) } else { ("comm_src", (rank + ranks - 1) % ranks) };
            let attributes = [
                peer,
                ("comm_tag", 0),
                ("tb_id", 0),
                ("local_time_step", step),
                ("msg_chunk_idx", if rank == 1 && step == 0 { (chunk + shift) % ranks } else { chunk }),
                ("msg_chunk_cnt", 1),
                ("total_chunk_cnt", ranks),
                ("is_rrc", u32::from(!sends && round < ranks - 1)),
            ];
            node.attributes = attributes.map(|(name, n)| Attribute::integer(&Arc::from(name), Arm::Int32, n)).to_vec();
            let reduces = node.integer("is_rrc") == Some(1);
            nodes.push(node);
            if reduces {
                let mut node = Node::new(id + 1, "", NodeKind::Comp);
                node.data_deps = vec![id];
                nodes.push(node);
            }
        }
        nodes
    };
    let collective = vec![Attribute::text(&Arc::from("collective"), "allreduce")];
    let metadata = Metadata { version: "0.0.4".into(), attributes: collective };
    Trace::from_nodes("t", &metadata, (0..ranks).map(of).collect()).unwrap()
}

#[test]
fn chunk_numbers_alone_give_a_verdict() {
    let verdict = |shift| {
        let plan = symbolic(4, shift).symbolic_plan(&Budget::default()).unwrap();
        msccl::verdict(&plan, 2).outcome
    };
    assert_eq!(verdict(0), Outcome::Correct);
    assert_eq!(verdict(1), Outcome::Wrong);
}

/// Read as absent, they would make another plan.
#[test]
fn an_attribute_of_a_step_that_has_another_type_is_named() {
    let trace = symbolic(2, 0);
    for name in ["is_rrc", "depid", "hasdep"] {
        let mut ranks: Vec<Vec<Node>> = trace.graphs.iter().map(|graph| graph.nodes.clone()).collect();
        let receive = &mut ranks[1][1].attributes;
        receive.retain(|attribute| &*attribute.name != name);
        receive.push(Attribute::text(&Arc::from(name), "1"));
        let changed = Trace::from_nodes("t", &trace.graphs[0].metadata, ranks).unwrap();
        let finding = changed.symbolic_plan(&Budget::default()).unwrap_err().remove(0);
        assert_eq!(finding.code, "AHBM-F136");
        let told = format!("attribute {name} is \"1\" in string_val, no whole number");
        assert!(finding.message.starts_with(&told), "{}", finding.message);
    }
}
