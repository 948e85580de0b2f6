//! `docs/faults.md` names a test per public fault; each named test must exist.

use crate::repo::{files, read, root};

#[test]
fn every_test_in_the_table_exists() {
    let sources: String = files(&[".rs"]).iter().map(|p| read(p)).collect();
    let table = read(&root().join("docs/faults.md"));
    let mut named = 0;
    for line in table.lines().filter(|l| l.starts_with("| ") && l.contains('`')) {
        for name in line.split('`').skip(1).step_by(2).filter(|n| n.starts_with("fault_")) {
            named += 1;
            assert!(sources.contains(&format!("fn {name}(")), "docs/faults.md names `{name}`, which no file defines");
        }
    }
    assert!(named > 20, "the table names only {named} tests");
}
