#include "textflag.h"

// func dotAVX2(w *int8, x *int16, n int, sums *[4]int32)
TEXT ·dotAVX2(SB), NOSPLIT, $0-32
	MOVQ  w+0(FP), SI
	MOVQ  x+8(FP), DI
	MOVQ  n+16(FP), CX
	MOVQ  sums+24(FP), DX
	LEAQ  (DI)(CX*2), R8
	LEAQ  (R8)(CX*2), R9
	LEAQ  (R9)(CX*2), R10
	VPXOR Y0, Y0, Y0
	VPXOR Y1, Y1, Y1
	VPXOR Y2, Y2, Y2
	VPXOR Y3, Y3, Y3
	XORQ  AX, AX

loop:
	VPMOVSXBW (SI)(AX*1), Y4      // 16 weights, widened
	VPMADDWD  (DI)(AX*2), Y4, Y5  // products, summed in pairs to int32
	VPMADDWD  (R8)(AX*2), Y4, Y6
	VPMADDWD  (R9)(AX*2), Y4, Y7
	VPMADDWD  (R10)(AX*2), Y4, Y8
	VPADDD    Y5, Y0, Y0
	VPADDD    Y6, Y1, Y1
	VPADDD    Y7, Y2, Y2
	VPADDD    Y8, Y3, Y3
	ADDQ      $16, AX
	CMPQ      AX, CX
	JLT       loop

	VPHADDD      Y1, Y0, Y0
	VPHADDD      Y3, Y2, Y2
	VPHADDD      Y2, Y0, Y0
	VEXTRACTI128 $1, Y0, X1
	VPADDD       X1, X0, X0
	VMOVDQU      X0, (DX)
	VZEROUPPER
	RET
