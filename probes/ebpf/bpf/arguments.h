/* Where a call's arguments lie, decoded from the 64-bit cookie of probes/code/cookies.py.
 *
 * What differs by architecture (REG_n, STACK_ARGUMENT and so on) comes from probes/ebpf/build/registers.py.
 */

/* The registers that carry arguments, copied: the verifier allows no computed access to the context. */
struct registers {
	u64 argument[8];
	u64 sp;
};

static __always_inline u64 reg(struct registers *regs, u32 number)
{
	return regs->argument[number & 7];
}

/* Argument modes of probes/code/cookies.py: none, register, the n-th one after the sixth, struct member, constant. */
static __always_inline u64 argument(struct registers *regs, u32 mode, u32 value, u32 eights)
{
	switch (mode) {
	case 1: return reg(regs, value);
	case 2: return STACK_ARGUMENT(value);
	case 3: return user_u64(reg(regs, value) + 8 * eights);
	case 4: return value;
	default: return 0;
	}
}

static __always_inline u64 size_argument(struct registers *regs, u64 cookie)
{
	u32 a = cookie >> 14 & 7, b = cookie >> 17 & 7;
	u64 address, size;
	switch (cookie >> 11 & 7) {
	case 1: return reg(regs, a) << b;
	case 2: return reg(regs, a) * reg(regs, b);
	case 3:
		address = reg(regs, a) + 8 * (cookie >> 20 & 63);
		size = user_u64(address) * user_u64(address + 8);
		return b == 3 ? size * user_u64(address + 16) : size;
	case 4: /* log2 of the size of each ncclDataType_t, four bits each */
		return reg(regs, a) << (0x001321332200ULL >> (4 * (reg(regs, b) & 15)) & 15);
	default: return 0;
	}
}

static __always_inline u64 stream_argument(struct registers *regs, u64 cookie)
{
	return argument(regs, cookie >> 37 & 7, cookie >> 40 & 7, cookie >> 43 & 15);
}

static __always_inline u64 aux_argument(struct registers *regs, u64 cookie)
{
	u64 value = cookie >> 47 & 1 ? reg(regs, cookie >> 48 & 7) : 0;
	return cookie >> 56 & 1 ? (u32)value : value;
}

/* Grid, block and dynamic shared memory of a launch, as seven numbers, and its stream, which lies beside them and is
 * read at once; false where they are not passed or cannot be read. By the modes of probes/code/cookies.py: two dim3 by
 * value (in two registers each), seven words, or a configuration that the first argument points to, which is the
 * same in the runtime and in the driver. */
static __always_inline bool launch_arguments(struct registers *regs, u64 cookie, u32 *sizes, u64 *stream)
{
	u64 words[5];
	switch (cookie >> 58 & 3) {
	case 1:
		if (BEHIND_THE_SIXTH(words, 2) || words[0] >> 32)
			return false;
		sizes[0] = reg(regs, 1);
		sizes[1] = reg(regs, 1) >> 32;
		sizes[2] = reg(regs, 2);
		sizes[3] = reg(regs, 3);
		sizes[4] = reg(regs, 3) >> 32;
		sizes[5] = reg(regs, 4);
		sizes[6] = words[0];
		*stream = words[1];
		return true;
	case 2:
		if (BEHIND_THE_SIXTH(words, 3))
			return false;
		sizes[0] = reg(regs, 1);
		sizes[1] = reg(regs, 2);
		sizes[2] = reg(regs, 3);
		sizes[3] = reg(regs, 4);
		sizes[4] = reg(regs, 5);
		sizes[5] = words[0];
		sizes[6] = words[1];
		*stream = words[2];
		return true;
	case 3:
		if (bpf_probe_read_user(words, sizeof(words), (void *)reg(regs, 0)))
			return false;
		sizes[0] = words[0];
		sizes[1] = words[0] >> 32;
		sizes[2] = words[1];
		sizes[3] = words[1] >> 32;
		sizes[4] = words[2];
		sizes[5] = words[2] >> 32;
		sizes[6] = words[3];
		*stream = words[4];
		return true;
	default: return false;
	}
}
