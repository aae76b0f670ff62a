use super::*;
use crate::testing;

#[test]
fn every_trained_codec_satisfies_the_contract() {
    let samples = testing::samples();
    testing::contract(&Table::<32>::train(&samples), &samples);
    testing::contract(&Table::<16>::train(&samples), &samples);
    testing::contract(&Stride::<32>::train(&samples), &samples);
    testing::contract(&Stride::<16>::train(&samples), &samples);
    testing::contract(&Scaled::train(&samples), &samples);
    testing::contract(&Prefix::<32>::train(&samples), &samples);
    testing::contract(&Prefix::<16>::train(&samples), &samples);
    testing::contract(&Rank::<32>::train(&samples), &samples);
    testing::contract(&Rank::<16>::train(&samples), &samples);
}
