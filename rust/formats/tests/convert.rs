//! Conversions: nothing is lost, and what would be is refused by name.

mod support {
    pub(crate) mod ring;
}

use ahbm_formats::convert::{convert, render};
use ahbm_formats::{Budget, Collective, Plan, Reading, msccl_xml};
use std::path::{Path, PathBuf};
use support::ring::ring_xml;

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

#[test]
fn xml_to_xml_is_the_same_program() {
    let folder = Folder::new("xml");
    let from = folder.file("ring.xml", &ring_xml(4));
    let to = folder.0.join("again.xml");
    assert_eq!(convert(&from, &to, &Reading::default()).unwrap(), std::slice::from_ref(&to));
    let again = plan(&std::fs::read_to_string(to).unwrap());
    let hash = |plan: &Plan| plan.lower_for_check(2, &Budget::default()).unwrap().program.hash();
    assert_eq!(hash(&again), hash(&plan(&ring_xml(4))));
}

#[test]
fn what_cannot_be_expressed_is_refused_and_nothing_is_written() {
    let folder = Folder::new("refused");
    let code = |plan: &Plan, to: &str| render(plan, Path::new(to)).map_err(|findings| findings[0].code);
    let rooted = Plan { collective: Collective::Reduce { root: 2 }, ..plan(&ring_xml(4)) };
    assert_eq!(code(&rooted, "a.xml"), Err("AHBM-U292"));
    assert_eq!(code(&rooted, "a.txt"), Err("AHBM-U291"));
    let from = folder.file("ring.xml", &ring_xml(4));
    let to = folder.file("kept.xml", "kept");
    assert_eq!(convert(&folder.0.join("none.xml"), &to, &Reading::default()).unwrap_err()[0].code, "AHBM-F101");
    assert_eq!(convert(&from, &folder.0.join("no/where.xml"), &Reading::default()).unwrap_err()[0].code, "AHBM-F102");
    assert_eq!(std::fs::read_to_string(to).unwrap(), "kept");
}
