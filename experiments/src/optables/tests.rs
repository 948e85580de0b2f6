//! The importer on the real package where it is at hand, and on damaged files everywhere.

use super::*;
use treeline_sim::optable::SHIPPED;

/// The package: a wheel or folder named by this variable.
const AT: &str = "TREELINE_OPTABLES_PACKAGE";

#[test]
fn importing_the_package_makes_the_shipped_files_byte_for_byte() {
    let Some(at) = std::env::var_os(AT).filter(|at| !at.is_empty()) else {
        println!("skipped: {AT} names no wheel of {PACKAGE} {VERSION}");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let imported = import(&mut Package::open(Path::new(&at)).unwrap(), folder.path()).unwrap();
    assert!(imported.as_shipped);
    for (name, shipped) in FILES.iter().zip(SHIPPED).chain([(&"NOTICE", NOTICE)]) {
        let made = std::fs::read_to_string(folder.path().join(name)).unwrap();
        let differs = made.lines().zip(shipped.lines()).position(|(a, b)| a != b);
        assert_eq!(differs.map(|l| l + 1), None, "{name}: the first line that differs");
        assert_eq!(made, shipped, "{name}");
    }
}
