//! PNG encoder (ISO/IEC 15948): one header, one stream of deflated rows, one end.

use std::io::Write;

use flate2::{Compression, write::ZlibEncoder};

/// Encodes rows of RGB pixels, 3 bytes each.
pub(super) fn encode(width: u32, pixels: &[u8]) -> Vec<u8> {
    let row = 3 * width.max(1) as usize;
    let height = (pixels.len() / row) as u32;
    // 8-bit RGB, deflate, standard filters, no interlacing.
    let mut header = [width.to_be_bytes(), height.to_be_bytes()].concat();
    header.extend([8, 2, 0, 0, 0]);
    let signature = b"\x89PNG\r\n\x1a\n".to_vec();
    [signature, chunk(b"IHDR", &header), chunk(b"IDAT", &deflate(row, pixels)), chunk(b"IEND", &[])].concat()
}

/// Deflates rows with filter 2 (difference from the row above).
fn deflate(row: usize, pixels: &[u8]) -> Vec<u8> {
    let mut stream = ZlibEncoder::new(Vec::new(), Compression::best());
    let mut above = vec![0; row];
    for line in pixels.chunks_exact(row) {
        let differences: Vec<u8> =
            line.iter().zip(&above).map(|(byte, above)| byte.wrapping_sub(*above)).collect();
        stream
            .write_all(&[2])
            .and_then(|()| stream.write_all(&differences))
            .expect("writing to memory cannot fail");
        above.copy_from_slice(line);
    }
    stream.finish().expect("writing to memory cannot fail")
}

fn chunk(name: &[u8; 4], data: &[u8]) -> Vec<u8> {
    let mut sum = crc32fast::Hasher::new();
    sum.update(name);
    sum.update(data);
    [&(data.len() as u32).to_be_bytes(), &name[..], data, &sum.finalize().to_be_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::read::ZlibDecoder;

    use super::*;

    #[test]
    fn decoded_pixels_equal_the_input() {
        let pixels: Vec<u8> = (0..2 * 3 * 5).map(|i| (i * i) as u8).collect();
        let file = encode(2, &pixels);
        assert_eq!(&file[..16], b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR");
        assert_eq!(file[16..29], [0, 0, 0, 2, 0, 0, 0, 5, 8, 2, 0, 0, 0]);
        // The IEND chunk with its checksum.
        assert!(file.ends_with(b"\0\0\0\0IEND\xae\x42\x60\x82"));
        let length = u32::from_be_bytes(file[33..37].try_into().unwrap()) as usize;
        let mut rows = Vec::new();
        ZlibDecoder::new(&file[41..41 + length]).read_to_end(&mut rows).unwrap();
        let mut back = vec![0u8; 6];
        for (number, line) in rows.chunks(7).enumerate() {
            assert_eq!(line[0], 2);
            back.iter_mut()
                .zip(&line[1..])
                .for_each(|(byte, difference)| *byte = byte.wrapping_add(*difference));
            assert_eq!(back, pixels[6 * number..][..6]);
        }
    }
}
