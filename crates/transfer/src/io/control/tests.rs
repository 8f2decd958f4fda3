mod honest;
