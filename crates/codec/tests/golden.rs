//! Golden streams and sizes from an independent implementation, one file per format version.

use buddy_codec::{
    Bdi, Bpc, EntryCodec, Fpc,
    testing::{hex, stream_of},
};
use buddy_core::{Entry, Layout};
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Golden {
    entry: String,
    bpc_bits: u32,
    bpc_stream: String,
    fpc_bits: u32,
    bdi_bytes: u32,
}

#[test]
fn version_1_matches_bit_for_bit() {
    let golden: Vec<Golden> = serde_json::from_str(include_str!("data/golden-v1.json")).unwrap();
    assert_eq!(golden.len(), 400);
    for (i, golden) in golden.iter().enumerate() {
        let entry: Entry = hex(&golden.entry).try_into().unwrap();
        let stream = hex(&golden.bpc_stream);
        assert_eq!(stream_of(&Bpc, &entry), (golden.bpc_bits, stream.clone()), "BPC, entry {i}");
        assert_eq!(Bpc.decode(&stream, Layout::A), Ok(entry), "BPC, entry {i}");
        assert_eq!(Fpc.size_bits(&entry), golden.fpc_bits, "FPC, entry {i}");
        assert_eq!(Bdi.size_bits(&entry), 4 + 8 * golden.bdi_bytes, "BDI, entry {i}");
    }
}
