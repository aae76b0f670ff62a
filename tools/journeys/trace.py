"""Writes the trace of a vector addition in Accel-Sim's format: a list and a kernel of 2048 blocks.

    trace.py FOLDER
"""

import pathlib
import sys

BLOCKS, WARPS = 2048, 8
A, B, C = 0x7F0000000000, 0x7F0001000000, 0x7F0002000000
HEAD = f"""\
-kernel name = vector_add
-kernel id = 1
-grid dim = ({BLOCKS},1,1)
-block dim = ({32 * WARPS},1,1)
-shmem = 0
-nregs = 12
-binary version = 90
-cuda stream id = 0
-shmem base_addr = 0x00007f1000000000
-local mem base_addr = 0x00007f2000000000
-nvbit version = 1.7
-accelsim tracer version = 5
-enable lineinfo = 0

#traces format = [line_num] PC mask dest_num [reg_dests] opcode src_num [reg_srcs] mem_width [adrrescompress?] [mem_addresses] immediate
"""


def warp(block, number):
    at = (block * WARPS + number) * 128
    lines = ["0000 ffffffff 1 R6 S2R 0 0 0", "0010 ffffffff 1 R4 IMAD.WIDE 1 R6 0 0",
             f"0020 ffffffff 1 R3 LDG.E 1 R4 4 1 {A + at:#x} 4 0", f"0030 ffffffff 1 R2 LDG.E 1 R4 4 1 {B + at:#x} 4 0",
             "0040 ffffffff 1 R0 FADD 2 R3 R2 0 0", f"0050 ffffffff 0 STG.E 2 R4 R0 4 1 {C + at:#x} 4 0", "0060 ffffffff 0 EXIT 0 0 0"]
    return f"\nwarp = {number}\ninsts = {len(lines)}\n" + "\n".join(lines) + "\n"


def main(folder):
    folder.mkdir()
    bytes = BLOCKS * WARPS * 128
    (folder / "kernelslist.g").write_text(f"MemcpyHtoD,{A:#018x},{bytes}\nMemcpyHtoD,{B:#018x},{bytes}\nkernel-1.traceg\n")
    with open(folder / "kernel-1.traceg", "w") as file:
        file.write(HEAD)
        for block in range(BLOCKS):
            warps = "".join(warp(block, number) for number in range(WARPS))
            file.write(f"\n#BEGIN_TB\n\nthread block = {block},0,0\n{warps}\n#END_TB\n")


main(pathlib.Path(sys.argv[1]))
