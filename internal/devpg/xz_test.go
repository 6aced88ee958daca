package devpg

import (
	"encoding/binary"
	"hash/crc32"
)

// storeXZ wraps data in the xz format without compressing them: the standard
// library has no xz, and the download test needs an archive, not a small one.
// The format is the one of "The .xz File Format", version 1.2.
func storeXZ(data []byte) []byte {
	le32 := binary.LittleEndian.AppendUint32
	sum := crc32.ChecksumIEEE
	pad := func(b []byte) []byte {
		for len(b)%4 != 0 {
			b = append(b, 0)
		}
		return b
	}
	flags := []byte{0, 1} // each block ends with a CRC32

	// Stream header.
	out := append([]byte{0xfd, '7', 'z', 'X', 'Z', 0}, flags...)
	out = le32(out, sum(flags))

	// Block header: 12 bytes, one filter, LZMA2, with a window of 1 MiB.
	block := []byte{2, 0, 0x21, 1, 16, 0, 0, 0}
	block = le32(block, sum(block))
	// LZMA2 chunks that hold plain bytes; the first resets the window.
	control := byte(1)
	for rest := data; len(rest) > 0; control = 2 {
		chunk := rest[:min(len(rest), 1<<16)]
		rest = rest[len(chunk):]
		block = append(block, control)
		block = binary.BigEndian.AppendUint16(block, uint16(len(chunk)-1))
		block = append(block, chunk...)
	}
	block = append(block, 0)
	unpadded := len(block) + 4 // with the check, without the padding before it
	block = le32(pad(block), sum(data))
	out = append(out, block...)

	// Index of the one block.
	index := []byte{0, 1}
	index = binary.AppendUvarint(index, uint64(unpadded))
	index = binary.AppendUvarint(index, uint64(len(data)))
	index = pad(index)
	index = le32(index, sum(index))
	out = append(out, index...)

	// Stream footer.
	footer := append(le32(nil, uint32(len(index)/4-1)), flags...)
	out = append(le32(out, sum(footer)), footer...)
	return append(out, 'Y', 'Z')
}
