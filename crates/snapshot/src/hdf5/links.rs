//! The links of a group, whatever they lead to: `hdf5-reader` lists a group only if it can read
//! every object in it. Groups store links in a symbol table, in the object header, or in a fractal
//! heap.

use hdf5_reader::{
    Hdf5File, btree_v1,
    btree_v2::{self, BTreeV2Header, BTreeV2Record},
    error::{Error, Result},
    fractal_heap::{FractalHeap, FractalHeapDirectBlockCache},
    io::Cursor,
    local_heap::LocalHeap,
    messages::{
        HdfMessage,
        link::{self, LinkMessage, LinkTarget},
        link_info::LinkInfoMessage,
        symbol_table_msg::SymbolTableMessage,
    },
    symbol_table::SymbolTableNode,
};

/// Returns the links of the group whose object header is at `address`, in creation order if the
/// group tracks it.
pub(super) fn of(file: &Hdf5File, address: u64) -> Result<Vec<LinkMessage>> {
    let header = file.get_or_parse_header(address)?;
    let mut links = Vec::new();
    for message in &header.messages {
        match message {
            HdfMessage::SymbolTable(table) => return in_symbol_table(file, table),
            HdfMessage::Link(link) => links.push(link.clone()),
            HdfMessage::LinkInfo(info) => links.extend(in_heap(file, info)?),
            _ => {}
        }
    }
    if links.iter().all(|link| link.creation_order.is_some()) {
        links.sort_by_key(|link| link.creation_order);
    }
    Ok(links)
}

fn in_symbol_table(file: &Hdf5File, table: &SymbolTableMessage) -> Result<Vec<LinkMessage>> {
    let (storage, block) = (file.storage(), file.superblock());
    let (offset, length) = (block.offset_size, block.length_size);
    let heap = LocalHeap::parse_at_storage(storage, table.heap_address, offset, length)?;
    let heap_bytes = usize::try_from(heap.data_segment_size).map_err(|_| too_large())?;
    let names = storage.read_range(heap.data_segment_address, heap_bytes)?;
    let text = |at: u64| {
        let rest = usize::try_from(at).ok().and_then(|at| names.get(at..)).unwrap_or_default();
        let end = rest.iter().position(|&byte| byte == 0);
        let name = end.and_then(|end| std::str::from_utf8(&rest[..end]).ok());
        name.map(str::to_owned).ok_or_else(|| Error::InvalidData("a name of a link is no text".to_owned()))
    };
    let leaves = btree_v1::collect_btree_v1_leaves_storage(
        storage,
        table.btree_address,
        offset,
        length,
        None,
        &[],
        None,
    )?;
    let entry_bytes = 2 * usize::from(offset) + 24;
    let mut links = Vec::new();
    for (_, node) in leaves {
        let count = storage.read_range(node, 8)?;
        let count = usize::from(u16::from_le_bytes([count[6], count[7]]));
        let bytes = storage.read_range(node, 8 + count * entry_bytes)?;
        for entry in SymbolTableNode::parse(&mut Cursor::new(&bytes), offset, length)?.entries {
            let target = match (entry.cache_type, entry.scratch) {
                (2, [a, b, c, d, ..]) => {
                    LinkTarget::Soft { path: text(u64::from(u32::from_le_bytes([a, b, c, d])))? }
                }
                _ => LinkTarget::Hard { address: entry.object_header_address },
            };
            links.push(LinkMessage { name: text(entry.link_name_offset)?, target, creation_order: None });
        }
    }
    Ok(links)
}

fn in_heap(file: &Hdf5File, info: &LinkInfoMessage) -> Result<Vec<LinkMessage>> {
    let (storage, block) = (file.storage(), file.superblock());
    let (offset, length) = (block.offset_size, block.length_size);
    if Cursor::is_undefined_offset(info.fractal_heap_address, offset) {
        return Ok(Vec::new());
    }
    let heap = FractalHeap::parse_at_storage(storage, info.fractal_heap_address, offset, length)?;
    let tree = BTreeV2Header::parse_at_storage(storage, info.btree_name_index_address, offset, length)?;
    let records =
        btree_v2::collect_btree_v2_records_storage(storage, &tree, offset, length, None, &[], None)?;
    let mut blocks = FractalHeapDirectBlockCache::default();
    let link = |record: &BTreeV2Record| {
        let BTreeV2Record::LinkNameHash { heap_id, .. } = record else { return None };
        let bytes = heap.get_object_storage_cached(heap_id, storage, offset, length, &mut blocks);
        Some(bytes.and_then(|bytes| link::parse(&mut Cursor::new(&bytes), offset, length, bytes.len())))
    };
    records.iter().filter_map(link).collect()
}

fn too_large() -> Error {
    Error::InvalidData("the names of a group are larger than memory".to_owned())
}
