//! Splits several arrays alike for parallel iteration.

/// Splits every array into chunks of `length`; returns the first chunk of each, then the second of
/// each, and so on.
pub(crate) fn lockstep<T, const N: usize>(arrays: [&mut [T]; N], length: usize) -> Vec<[&mut [T]; N]> {
    let pieces = arrays.iter().map(|array| array.len()).min().unwrap_or(0).div_ceil(length);
    let mut chunks = arrays.map(|array| array.chunks_mut(length));
    (0..pieces).map(|_| chunks.each_mut().map(|chunk| chunk.next().unwrap_or_default())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_of_all_arrays_are_grouped_by_index() {
        let (mut a, mut b) = ([1, 2, 3, 4, 5], [6, 7, 8, 9, 10]);
        let pieces = lockstep([&mut a, &mut b], 2);
        assert_eq!(pieces.len(), 3);
        assert_eq!(pieces[1], [&[3, 4], &[8, 9]]);
        assert_eq!(pieces[2], [&[5], &[10]]);
    }
}
