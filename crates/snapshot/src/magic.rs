//! Detection of formats by their first bytes: formats that are read, and formats rejected by name.
//!
//! A memory dump has no header, so any file could be one. A file that begins like a container is
//! read as raw numbers only on request, since compressed or structured bytes are not a program's
//! memory.

use crate::{Error, Format};

/// Possible offsets of an HDF5 header: the start, or after a user block (512 bytes in MATLAB's
/// files).
const HDF5_STARTS: [usize; 4] = [0, 512, 1024, 2048];

/// Formats that are not read: first bytes, name, and the conversion to a readable format.
const REFUSED: [(&[u8], &str, &str); 16] = [
    (b"version https://git-lfs", "a pointer of Git LFS, not the file", "git lfs pull"),
    (b"# vtk DataFile", "legacy VTK", "meshio convert IN.vtk OUT.xdmf, then give its .h5"),
    (b"<?xml", "XML", "for VTK: meshio convert IN.vtu OUT.xdmf, then give its .h5"),
    (b"<VTKFile", "VTK's XML", "meshio convert IN.vtu OUT.xdmf, then give its .h5"),
    (b"\x1f\x8b\x08", "gzip", "gunzip FILE"),
    (b"\x28\xb5\x2f\xfd", "zstd", "unzstd FILE"),
    (b"\xfd7zXZ\0", "xz", "unxz FILE"),
    (b"BZh91AY&SY", "bzip2", "bunzip2 FILE"),
    (b"MATLAB 5.0 MAT-file", "MATLAB 5", "in MATLAB: save(FILE, '-v7.3')"),
    (
        b"SIMPLE  =",
        "FITS",
        "python -c 'import numpy, astropy.io.fits as f; numpy.save(\"OUT.npy\", f.getdata(\"IN\"))'",
    ),
    (b"PAR1", "Parquet", "save its columns as .npy"),
    (b"ARROW1", "Arrow", "save its columns as .npy"),
    (b"\x89PNG", "PNG", "save its pixels as .npy"),
    (b"\x7fELF", "an ELF program", "give a dump of its memory"),
    (b"ggjt", "GGML of before GGUF", "convert it with llama.cpp"),
    (b"SQLite format 3\0", "SQLite", "save its columns as .npy"),
];

/// The remedy for a file that contradicts its name.
const AGAIN: &str = "look where it came from, or get it again";

/// Extensions of formats with known first bytes; a file without these is truncated, or of another
/// format.
const PROMISED: [(&str, &str, &str); 8] = [
    (".h5", "no HDF5, as its name says it is", AGAIN),
    (".hdf5", "no HDF5, as its name says it is", AGAIN),
    (".nc", "no NetCDF, as its name says it is", AGAIN),
    (".vtk", "no VTK, as its name says it is", AGAIN),
    (".gguf", "no GGUF, as its name says it is", AGAIN),
    (".pt", "nothing that torch.save wrote, as its name says it is", AGAIN),
    (".pth", "nothing that torch.save wrote, as its name says it is", AGAIN),
    (".json", "JSON, which holds no tensors", "give the .safetensors files, or the folder that holds them"),
];

/// Detects the format of a file whose extension does not tell.
///
/// # Errors
/// [`Error::Container`] if the file has a known format that is not readable.
pub(crate) fn detect(name: &str, bytes: &[u8]) -> Result<Format, Error> {
    if HDF5_STARTS
        .iter()
        .any(|&at| bytes.get(at..).is_some_and(|rest| rest.starts_with(b"\x89HDF\r\n\x1a\n")))
    {
        return Ok(Format::Hdf5);
    }
    match bytes {
        [b'C', b'D', b'F', 1 | 2 | 5, ..] => return Ok(Format::NetCdf),
        [b'G', b'G', b'U', b'F', ..] => return Ok(Format::Gguf),
        [0x93, b'N', b'U', b'M', b'P', b'Y', ..] => return Ok(Format::Npy),
        [b'P', b'K', 3, 4, ..] => return Ok(Format::Torch),
        _ => {}
    }
    if is_safetensors(bytes) {
        return Ok(Format::Safetensors);
    }
    let found = REFUSED.iter().find(|(magic, ..)| bytes.starts_with(magic));
    if let Some(&(_, what, remedy)) = found {
        return Err(Error::Container { what, remedy });
    }
    if is_pickle(name, bytes) {
        let remedy = "python -c 'import torch; torch.save(torch.load(\"IN\"), \"OUT.pt\")'";
        return Err(Error::Container { what: "a pickle (PyTorch before 1.6)", remedy });
    }
    let name = name.to_lowercase();
    match PROMISED.iter().find(|(extension, ..)| name.ends_with(extension)) {
        Some(&(_, what, remedy)) => Err(Error::Container { what, remedy }),
        None => Ok(Format::Raw),
    }
}

/// Returns true if a JSON header of the stated length follows.
fn is_safetensors(bytes: &[u8]) -> bool {
    let Some((length, rest)) = bytes.split_first_chunk() else { return false };
    let header = usize::try_from(u64::from_le_bytes(*length)).ok().and_then(|length| rest.get(..length));
    header.is_some_and(|header| header.starts_with(b"{\"") && header.trim_ascii_end().ends_with(b"}"))
}

/// Two bytes are too few to reject a file, so the name counts too.
fn is_pickle(name: &str, bytes: &[u8]) -> bool {
    let name = name.to_lowercase();
    let torch = [".pt", ".pth", ".bin", ".pkl", ".ckpt"].iter().any(|extension| name.ends_with(extension));
    torch && matches!(bytes, [0x80, 2..=5, ..]) && bytes.ends_with(b".")
        || bytes.starts_with(b"\x80\x02\x8a\x0al\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_names_the_format_and_the_remedy() {
        for (magic, what, remedy) in REFUSED {
            let error = detect("field.dat", magic).unwrap_err().to_string();
            assert!(error.contains(what) && error.contains(remedy), "{error}");
        }
        let index = detect("model.safetensors.index.json", b"{\"weight_map\"").unwrap_err().to_string();
        assert!(index.contains("JSON") && index.contains("--raw"), "{index}");
        for name in ["rho.h5", "rho.NC", "model.gguf", "state.pt"] {
            let error = detect(name, b"cut").unwrap_err().to_string();
            assert!(error.contains("as its name says") && error.contains("get it again"), "{error}");
        }
        assert!(detect("a.pt", b"\x80\x02}q\x00.").unwrap_err().to_string().contains("pickle"));
    }

    #[test]
    fn dumps_stay_dumps() {
        for bytes in [&b"\x80\x02}q\x00."[..], b"", b"\0\0\0\0", b"{}", b"GGU", b"\x1f\x8b\x07"] {
            assert_eq!(detect("field.f32", bytes).unwrap(), Format::Raw);
        }
        let mut matlab = vec![b'M'; 512];
        matlab.extend(b"\x89HDF\r\n\x1a\n");
        assert_eq!(detect("a.mat", &matlab).unwrap(), Format::Hdf5);
        assert_eq!(detect("model.packed", b"\x09\0\0\0\0\0\0\0{\"a\": {}} ").unwrap(), Format::Safetensors);
    }
}
