//! The pages of the documentation agree with the specifications.

use buddy_record::spec::{Gpu, Link};

#[test]
fn the_documentation_lists_every_gpu_and_link() {
    let model = include_str!("../../../docs/reference/specs.md");
    let header = model.lines().find(|line| line.starts_with("| parameter |")).unwrap();
    for name in Gpu::names() {
        let row = format!("| {name} | ");
        assert!(
            header.contains(name) || model.lines().any(|line| line.starts_with(&row)),
            "docs/reference/specs.md has neither column nor row for {name}"
        );
    }
    for name in Link::names() {
        let rows = || model.lines().filter_map(|line| line.strip_prefix("| ")?.split(" |").next());
        assert!(
            rows().any(|row| row.split(", ").any(|known| known == name)),
            "docs/reference/specs.md has no row for {name}"
        );
    }
}
