//! The built-in files of `specs/`. To add a GPU or a link, add its file and a line here.

/// Name and text of each built-in GPU.
pub(super) const GPUS: &[(&str, &str)] = &[
    ("paper", include_str!("../../specs/paper.toml")),
    ("p100", include_str!("../../specs/p100.toml")),
    ("titan-x", include_str!("../../specs/titan-x.toml")),
    ("titan-xp", include_str!("../../specs/titan-xp.toml")),
    ("v100", include_str!("../../specs/v100.toml")),
    ("a100", include_str!("../../specs/a100.toml")),
    ("h200", include_str!("../../specs/h200.toml")),
    ("gh200", include_str!("../../specs/gh200.toml")),
    ("h100", include_str!("../../specs/h100.toml")),
    ("b200", include_str!("../../specs/b200.toml")),
    ("rtx4090", include_str!("../../specs/rtx4090.toml")),
    ("rtx5090", include_str!("../../specs/rtx5090.toml")),
];

/// Name and text of each built-in link.
pub(super) const LINKS: &[(&str, &str)] = &[
    ("50", include_str!("../../specs/link-50.toml")),
    ("100", include_str!("../../specs/link-100.toml")),
    ("150", include_str!("../../specs/link-150.toml")),
    ("200", include_str!("../../specs/link-200.toml")),
    ("pcie3", include_str!("../../specs/link-pcie3.toml")),
    ("pcie4", include_str!("../../specs/link-pcie4.toml")),
    ("pcie5", include_str!("../../specs/link-pcie5.toml")),
    ("nvlink2", include_str!("../../specs/link-nvlink2.toml")),
    ("nvlink3", include_str!("../../specs/link-nvlink3.toml")),
    ("nvlink4", include_str!("../../specs/link-nvlink4.toml")),
    ("nvlink5", include_str!("../../specs/link-nvlink5.toml")),
    ("c2c", include_str!("../../specs/link-c2c.toml")),
];
